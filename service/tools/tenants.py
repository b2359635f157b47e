"""``webhookd tenants purge``: erase everything of one tenant.

Belongs here: the command, its two safety catches, and what it prints. Does not belong here: what is deleted, and in which
order (``store.purging``).

It is safe beside a running service. What the tenant's producers and operators go on sending makes new rows, though: stop
them first. If rows keep coming, the command says so and ends with 1; run it again when they have stopped. Kafka, backups
and logs are not webhookd's to erase: a record that is still in the topic comes back when it is read again from there.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Iterator, Mapping

from service.config import MIGRATE, load_configuration
from service.store.database import Database
from service.store.purging import TenantPurge
from service.tools.terminal import refuse, run_with_database


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="action")
    purge = commands.add_parser("purge", help="erase everything of a tenant, for good")
    purge.add_argument("tenant")
    choice = purge.add_mutually_exclusive_group()
    choice.add_argument("--yes", action="store_true", help="do it; without this, nothing is deleted")
    choice.add_argument("--dry-run", action="store_true", help="only count")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 nothing is left (or counted), 1 rows keep coming or the database is away, 2 refused."""
    if not (arguments.yes or arguments.dry_run):
        refuse(f"this erases everything of tenant {arguments.tenant}, for good: say --yes, or --dry-run to count")
        return 2
    return run_with_database(
        lambda: asyncio.run(_run(arguments, load_configuration(needs=MIGRATE).database_url())),
        "run it again, it goes on where it was",
    )


async def _run(arguments: argparse.Namespace, dsn: str) -> int:
    async with Database(dsn, size=2, command_timeout=600.0, name="webhookd tenants") as database:
        purge = TenantPurge(database, arguments.tenant)
        if arguments.dry_run:
            print("\n".join(describe(await purge.count())))
            return 0
        return await erase(purge)


async def erase(purge: TenantPurge) -> int:
    """Erase, note it in the audit log, print what was deleted; 1 if rows kept coming. Raises StoreUnavailable."""
    if not await purge.count():
        print("there is nothing of this tenant")
        return 0
    purged = await purge.run()
    target = await purge.write_audit(purged)
    print("\n".join([*describe(purged.deleted), f"noted in the audit log as: {target}"]))
    if purged.left:
        told = ", ".join(f"{count} {table}" for table, count in purged.left.items())
        refuse(f"NOT ALL: {told} are there still. Stop what sends events for this tenant; run it again")
    return 1 if purged.left else 0


def describe(counts: Mapping[str, int]) -> Iterator[str]:
    """One line a table that has or had rows of the tenant, and the sum."""
    for table, count in counts.items():
        yield f"{table:<16} {count}"
    yield f"{'rows':<16} {sum(counts.values())}"
