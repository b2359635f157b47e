"""Bringing the schema up to date, and telling whether this code can serve the schema that is there.

Belongs here: Alembic's API around one connection. Does not belong here: what the schema is (``migrations/``). Alembic is
imported only to migrate: looking at the schema is part of every start, and has to be quick.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from service import __version__
from service.store.database import translated

if TYPE_CHECKING:
    from sqlalchemy import Connection

FOLDER = Path(__file__).parent / "migrations"
LOCK_KEY = 0x7765_6268  # "webh": one migration at a time
PATIENCE = 10.0  # seconds


class SchemaUnfit(Exception):
    """This code cannot serve the schema; the message says what to run."""


async def migrate(dsn: str) -> None:
    """Run all revisions that are missing; none on a schema that a later release has made and this one can serve.

    Raises StoreUnavailable, SchemaUnfit.
    """
    if await _is_of_later_release(dsn):
        return
    from sqlalchemy.ext.asyncio import create_async_engine

    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn, timeout=PATIENCE))
    try:
        with translated():
            async with engine.connect() as connection:
                await connection.run_sync(_upgrade)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    connection.exec_driver_sql(f"SELECT pg_advisory_lock({LOCK_KEY})")
    connection.commit()
    config = Config()
    config.set_main_option("script_location", str(FOLDER))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()
    connection.exec_driver_sql(f"SELECT pg_advisory_unlock({LOCK_KEY})")


async def check_schema(dsn: str) -> None:
    """Raise SchemaUnfit when this code cannot serve the schema, StoreUnavailable when the database is away."""
    current, oldest_code = await _inspect(dsn)
    known = _list_revisions()
    if current is None:
        raise SchemaUnfit("the database has no schema yet: run 'webhookd migrate'")
    if current == known[-1]:
        return
    if current in known:
        raise SchemaUnfit(f"the schema is at {current}, this code needs {known[-1]}: run 'webhookd migrate'")
    _check_oldest(oldest_code)


async def _is_of_later_release(dsn: str) -> bool:
    current, oldest_code = await _inspect(dsn)
    if current is None or current in _list_revisions():
        return False
    _check_oldest(oldest_code)
    return True


def _check_oldest(oldest_code: str) -> None:
    if _version(oldest_code) > _version(__version__):
        raise SchemaUnfit(f"the schema serves releases from {oldest_code} on, this is {__version__}: upgrade webhookd")


async def is_current(dsn: str) -> bool:
    """Tell whether every revision that this code knows has run. Raises StoreUnavailable, SchemaUnfit."""
    current, oldest_code = await _inspect(dsn)
    if current is None or current in _list_revisions():
        return current == _list_revisions()[-1]
    _check_oldest(oldest_code)
    return True


async def _inspect(dsn: str) -> tuple[str | None, str]:
    """Return the revision that the schema is at, None for none, and the oldest release that it serves."""
    with translated():
        connection = await asyncpg.connect(dsn, timeout=PATIENCE, command_timeout=PATIENCE)
        try:
            if await connection.fetchval("SELECT to_regclass('alembic_version')") is None:
                return None, __version__
            current: str | None = await connection.fetchval("SELECT version_num FROM alembic_version")
            if current is None:
                return None, __version__
            return current, await connection.fetchval("SELECT oldest_code FROM schema_info")
        finally:
            await connection.close(timeout=PATIENCE)


def _list_revisions() -> list[str]:
    """Return all revisions in order: their names begin with their number."""
    return sorted(path.stem for path in (FOLDER / "versions").glob("[0-9]*.py"))


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
