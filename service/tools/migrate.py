"""``webhookd migrate``: bring the schema up to date, or with ``--check`` say whether it is.

Belongs here: the command. Does not belong here: Alembic (``store.migrating``) and the schema.
"""

from __future__ import annotations

import argparse
import asyncio
import sys

from service.config import MIGRATE, ConfigError, load_configuration
from service.ports import StoreUnavailable
from service.store.database import Database
from service.store.migrating import SchemaUnfit, is_current, migrate
from service.store.partitions import Partitions


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when something is to be done")


def run(arguments: argparse.Namespace) -> int:
    """Run the command: 0 done or up to date, 1 to be done (``--check``) or database away, 2 settings unusable."""
    try:
        configuration = load_configuration(needs=MIGRATE)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    dsn = configuration.settings.database_url.get_secret_value()
    try:
        return asyncio.run(_check(dsn) if arguments.check else _migrate(dsn))
    except SchemaUnfit as refusal:
        print(refusal, file=sys.stderr)
        return 2
    except StoreUnavailable as error:
        print(f"the database does not answer ({error}): see WEBHOOKD_DATABASE_URL", file=sys.stderr)
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
