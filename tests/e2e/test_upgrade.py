"""Upgrades: code of one release on the schema of another, under load."""

import subprocess
import sys
from dataclasses import replace

import pytest

from service import __version__
from tests.e2e.load import Ledger, Load, all_delivered
from tests.e2e.story import new_tenant
from tests.support.postgres import connected
from tests.support.releases import list_releases, parse_version, unpack
from tests.support.service import build_settings, run_program

LATER_REVISION = "9999_later"
EXPAND = (  # what a migration may do within a minor version
    "ALTER TABLE jobs ADD COLUMN later_text text",
    "ALTER TABLE batches ADD COLUMN later_flag boolean NOT NULL DEFAULT false",
    "ALTER TABLE webhooks ADD COLUMN later_number integer",
    "ALTER TABLE messages ADD COLUMN later_text text",
    "ALTER TABLE deliveries ADD COLUMN later_text text",
    "ALTER TABLE deliveries_done ADD COLUMN later_text text",
    "ALTER TABLE attempts ADD COLUMN later_text text",
    "CREATE TABLE later (later_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text NOT NULL)",
    "CREATE INDEX CONCURRENTLY jobs_later ON jobs (later_text) WHERE later_text IS NOT NULL",
    "CREATE INDEX CONCURRENTLY deliveries_later ON deliveries (later_text) WHERE later_text IS NOT NULL",
)


async def expand(database):
    """Migrate as a later release would, one that still serves this code."""
    async with connected(database) as connection:
        for statement in EXPAND:
            await connection.execute(statement)
        await connection.execute("UPDATE alembic_version SET version_num = $1", LATER_REVISION)


async def set_oldest(database, release):
    async with connected(database) as connection:
        await connection.execute("UPDATE schema_info SET oldest_code = $1", release)


@pytest.mark.timeout(400)
async def test_the_oldest_release_that_the_schema_serves_goes_on_while_it_is_replaced(
    new_database, new_service, receiver, tmp_path
):
    """Its pods serve while this release migrates, on the new schema, and beside the new pods; then they end.

    Until there is a release it is the committed code that is replaced, and the schema becomes one of a later release.
    """
    release = list_releases(await read_oldest(await new_database()))[0]
    database = await new_database(migrated=False)
    old_code = unpack(release, tmp_path / "old")
    assert str(tmp_path) in run_python("import service; print(service.__file__)", old_code)
    old_settings = {**build_settings(database), **old_code}
    await migrate_with(old_settings)
    async with new_service(old_settings) as old, new_tenant(old, None) as tenant:
        await tenant.register(receiver, event_types=["*"], scopes=["job"], max_in_flight=20)
        to_old = Load(tenant, name="old")
        async with to_old.over_http():
            await receiver.wait_for(30)
            await migrate_with(build_settings(database))
            await expand(database)
            await receiver.wait_for(len(receiver.arrivals) + 60)
            new = new_service(build_settings(database))
            await new.start()
            tenant_at_new = replace(tenant, api=tenant.api.of_service(new))
            to_new = Load(tenant_at_new, name="new")
            async with to_new.over_http():
                await receiver.wait_for(len(receiver.arrivals) + 60)
        assert await old.stop() == 0, old.tail()
        assert '"level":"error"' not in old.tail(1_000_000) + new.tail(1_000_000)
        for load in (to_old, to_new):
            await receiver.wait_for(all_delivered(receiver, load))
        await tenant_at_new.idle()
        ledger = Ledger(receiver)
        for load in (to_old, to_new):
            ledger.assert_nothing_lost(load)
        ledger.assert_no_duplicates()
        assert await new.stop() == 0, new.tail()


async def migrate_with(settings):
    ended = await run_program("migrate", settings=settings)
    assert ended.status == 0, ended.stderr


async def read_oldest(database):
    async with connected(database) as connection:
        return await connection.fetchval("SELECT oldest_code FROM schema_info")


def run_python(code, environment):
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=environment, cwd="/", capture_output=True, check=True, timeout=60
    ).stdout.decode()


async def test_a_schema_of_a_later_release_is_served_if_it_says_so_and_refused_if_not(new_database, new_service):
    settings = build_settings(database := await new_database())
    await expand(database)
    await migrate_with(settings)  # nothing to do, and nothing done
    async with new_service(settings) as service:
        assert await service.stop() == 0, service.tail()
    later = f"{parse_version(__version__)[0] + 1}.0.0"
    await set_oldest(database, later)
    for command in ("serve", "migrate"):
        ended = await run_program(command, settings=settings)
        assert ended.status == 2
        (only,) = ended.stderr.splitlines()
        assert f"the schema serves releases from {later} on, this is {__version__}" in only


async def test_the_schema_serves_this_release(new_database):
    assert parse_version(await read_oldest(await new_database())) <= parse_version(__version__)
