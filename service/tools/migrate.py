"""``webhookd migrate``: bring the schema up to date, or with ``--check`` say whether it is.

Belongs here: the command. Does not belong here: Alembic (``store.migrating``) and the schema.
"""

from __future__ import annotations

import argparse
import asyncio

from service.config import MIGRATE, load_configuration
from service.ports import Conflict
from service.store.database import Database
from service.store.migrating import SchemaUnfit, is_current, migrate
from service.store.partitions import Partitions
from service.tools.terminal import refuse, run_with_database


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something is to be done")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 done or up to date, 1 to be done (``--check``), database away or locked, 2 settings unusable."""
    return run_with_database(lambda: _run(check=arguments.check))


def _run(*, check: bool) -> int:
    """On the direct address, if there is one: a transaction pooler does not keep the lock of a migration."""
    dsn = load_configuration(needs=MIGRATE).listen_url()
    try:
        return asyncio.run(_check(dsn) if check else _migrate(dsn))
    except SchemaUnfit as refusal:
        refuse(refusal)
        return 2
    except Conflict as error:
        refuse(f"another transaction holds what is to be changed ({error}): end it, or run this again after it")
        return 1


async def _check(dsn: str) -> int:
    current = await is_current(dsn)
    print("the schema is up to date" if current else "the schema is not up to date: run 'webhookd migrate'")
    return 0 if current else 1


async def _migrate(dsn: str) -> int:
    await migrate(dsn)
    async with Database(dsn) as database:
        await Partitions(database).make_ahead()
    print("the schema is up to date")
    return 0
