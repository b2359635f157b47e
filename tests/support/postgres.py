"""The embedded PostgreSQL: one server and one migrated database a worker, emptied before each test that asks for it."""

import asyncio
import itertools
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
from anyio.from_thread import BlockingPortal

from service.tools.embedded import embedded_postgres

TEMPLATE = "webhookd_template"
EMPTY = """
DO $$
DECLARE
    name regclass;
    filled boolean;
    names text[] := '{}';
BEGIN
    FOR name IN
        SELECT oid FROM pg_class
        WHERE relkind IN ('r', 'p') AND NOT relispartition AND relname NOT IN ('alembic_version', 'schema_info')
          AND relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
          AND relpersistence <> 't'
    LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', name) INTO filled;
        IF filled THEN names := names || name::text; END IF;
    END LOOP;
    IF names <> '{}' THEN EXECUTE 'TRUNCATE ' || array_to_string(names, ', ') || ' RESTART IDENTITY CASCADE'; END IF;
END $$
"""

NewDatabase = Callable[..., Awaitable[str]]


def build_dsn(server: str, name: str) -> str:
    """The DSN of database `name` on the server that `server` points to."""
    return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))


async def migrate(dsn: str) -> None:
    """Bring an empty database to the newest schema."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "service", "migrate"),
        env={**os.environ, "WEBHOOKD_DATABASE_URL": dsn},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), 120)
    assert process.returncode == 0, output.decode()


@asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        await connection.close(timeout=5)


async def create_database(server: str, name: str, template: str = "template0") -> str:
    """Create database `name` as a copy of `template` and return its DSN."""
    async with connected(server) as connection:
        await connection.execute(f'CREATE DATABASE "{name}" TEMPLATE "{template}" STRATEGY FILE_COPY')
    return build_dsn(server, name)


async def drop_database(server: str, name: str) -> None:
    async with connected(server) as connection:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


async def empty(dsn: str) -> None:
    """Truncate every table that has rows, but for those that migrations fill.

    A connection which still holds one in a transaction makes it fail.
    """
    async with connected(dsn) as connection:
        await connection.execute("SET lock_timeout = '30s'")
        await connection.execute(EMPTY)


async def _prepare_template(server: str) -> str:
    await migrate(await create_database(server, TEMPLATE))
    return TEMPLATE


@pytest.fixture(scope="session")
def postgres(portal: BlockingPortal) -> Iterator[str]:
    """DSN of the server's own database `postgres`, as superuser."""
    with portal.wrap_async_context_manager(embedded_postgres()) as dsn:
        yield dsn


@pytest.fixture(scope="session")
def database_template(portal: BlockingPortal, postgres: str) -> str:
    """Name of a migrated, empty database that nobody is connected to."""
    return portal.call(_prepare_template, postgres)


@pytest.fixture(scope="session")
def worker_database(portal: BlockingPortal, postgres: str, database_template: str) -> str:
    name = f"webhookd_{os.environ.get('PYTEST_XDIST_WORKER', 'main')}"
    return portal.call(create_database, postgres, name, database_template)


@pytest.fixture
async def database(worker_database: str) -> str:
    """DSN of this worker's migrated database, empty."""
    await empty(worker_database)
    return worker_database


@pytest.fixture
async def new_database(postgres: str, request: pytest.FixtureRequest) -> AsyncIterator[NewDatabase]:
    """`await new_database()` gives the DSN of a migrated database of its own, `migrated=False` of a blank one."""
    made: list[str] = []

    async def make(*, migrated: bool = True) -> str:
        template = request.getfixturevalue("database_template") if migrated else "template0"
        name = f"own_{next(_numbers)}"
        made.append(name)
        return await create_database(postgres, name, template)

    yield make
    for name in made:
        await drop_database(postgres, name)


_numbers = itertools.count(1)
