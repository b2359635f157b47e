"""``webhookd secrets rotate-encryption``: seal everything that is stored with the first encryption key.

Belongs here: the command and what it prints. Does not belong here: the walk (``store.resealing``), signing secrets of
webhooks (the API rotates those), and changing ``WEBHOOKD_ENCRYPTION_KEYS``.

The way to a new key: add it last, roll that out to every process; move it first, roll that out; run this; run it once more,
which has to say that nothing was left to do; then take the old key out. It may be stopped and run again at any time.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Sequence

from service.config import Configuration, load_configuration
from service.sealing import Sealer
from service.store.audit import Entry, write_entry
from service.store.database import Database
from service.store.resealing import Resealing, Tally
from service.tools.keys import ACTOR
from service.tools.terminal import escape, run_with_database

_NEEDS = ("database_url", "encryption_keys")
_SHOWN = 100  # values a column that do not open


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="action")
    commands.add_parser(
        "rotate-encryption",
        help="seal anew what another key than the first of WEBHOOKD_ENCRYPTION_KEYS sealed; may be run at any time",
    )


def run(_: argparse.Namespace) -> int:
    """Run the command: 0 all is under the first key, 1 not all or the database is away, 2 settings unusable."""
    return run_with_database(
        lambda: asyncio.run(_run(load_configuration(needs=_NEEDS))), "run it again, it goes on where it was"
    )


async def _run(configuration: Configuration) -> int:
    sealer = Sealer([(key.key_id, key.material) for key in configuration.settings.sealing_keys])
    async with Database(
        configuration.database_url(), size=1, command_timeout=300.0, name="webhookd secrets"
    ) as database:
        tallies = await rotate_encryption(database, sealer)
    print("\n".join(line for tally in tallies for line in describe(tally)))
    return 1 if any(tally.broken or tally.left for tally in tallies) else 0


async def rotate_encryption(database: Database, sealer: Sealer) -> list[Tally]:
    """Seal every column anew, and note it in the audit log if anything was changed. Raises StoreUnavailable."""
    tallies = [tally async for tally in Resealing(database, sealer).run()]
    if any(tally.resealed for tally in tallies):
        await _audit(database, tallies)
    return tallies


async def _audit(database: Database, tallies: Sequence[Tally]) -> None:
    after = {tally.column: tally.resealed for tally in tallies}
    async with database.transaction() as session:
        now = await session.value("transaction_now")
        await write_entry(session, Entry(now, None, ACTOR, "secrets_rotate_encryption", "secrets", None, after))


def describe(tally: Tally) -> Iterator[str]:
    """One line a column, and one for each value that does not open; control characters escaped."""
    left = f", {tally.left} changed by others meanwhile: run it again" if tally.left else ""
    broken = f", {len(tally.broken)} NOT READABLE" if tally.broken else ""
    yield f"{tally.column:<24} {tally.seen} looked at, {tally.resealed} sealed anew{left}{broken}"
    for each in tally.broken[:_SHOWN]:
        yield escape(f"  tenant {each.tenant_id} {each.name}".rstrip() + f": {each.reason}")
    if len(tally.broken) > _SHOWN:
        yield f"  and {len(tally.broken) - _SHOWN} more"
