"""Bringing the schema up to date, and telling whether this code can serve the schema that is there.

Belongs here: Alembic's API around one connection. Does not belong here: what the schema is (``migrations/``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import asyncpg
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import create_async_engine

from service import __version__
from service.store.database import translated

LOCK_KEY = 0x7765_6268  # "webh": one migration at a time


class SchemaUnfit(Exception):
    """This code cannot serve the schema; the message says what to run."""


async def migrate(dsn: str) -> None:
    """Run all revisions that are missing. Raises StoreUnavailable."""
    await _with_connection(dsn, _upgrade)


async def check_schema(dsn: str) -> None:
    """Raise SchemaUnfit when this code cannot serve the schema, StoreUnavailable when the database is away."""
    current, oldest_code = await _with_connection(dsn, _inspect)
    known = [revision.revision for revision in _scripts().walk_revisions()]
    if current is None:
        raise SchemaUnfit("the database has no schema yet: run 'webhookd migrate'")
    if current == known[0]:
        return
    if current in known:
        raise SchemaUnfit(f"the schema is at {current}, this code needs {known[0]}: run 'webhookd migrate'")
    if _version(oldest_code) > _version(__version__):
        raise SchemaUnfit(f"the schema serves releases from {oldest_code} on, this is {__version__}: upgrade webhookd")


async def is_current(dsn: str) -> bool:
    """Tell whether every revision that this code knows has run. Raises StoreUnavailable."""
    current, _ = await _with_connection(dsn, _inspect)
    return bool(current == _scripts().get_current_head())


async def _with_connection(dsn: str, work: Any) -> Any:
    engine = create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn, timeout=10.0))
    try:
        with translated():
            async with engine.connect() as connection:
                return await connection.run_sync(work)
    finally:
        await engine.dispose()


def _upgrade(connection: Connection) -> None:
    connection.exec_driver_sql(f"SELECT pg_advisory_lock({LOCK_KEY})")
    connection.commit()
    config = _config()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
    connection.commit()
    connection.exec_driver_sql(f"SELECT pg_advisory_unlock({LOCK_KEY})")


def _inspect(connection: Connection) -> tuple[str | None, str]:
    current = MigrationContext.configure(connection).get_current_revision()
    if current is None:
        return None, __version__
    return current, connection.exec_driver_sql("SELECT oldest_code FROM schema_info").scalar_one()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    return config


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(_config())


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])
