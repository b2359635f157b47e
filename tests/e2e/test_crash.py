"""What must be survived, counted at the receiver: nothing lost, and only what was in flight or unrecorded repeated."""

import asyncio
import os
import random
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from tests.e2e.load import Ledger, Load, all_delivered
from tests.e2e.story import create_topic, new_tenant, opened_topic
from tests.support.postgres import connected, migrate
from tests.support.postgres_server import HarmedPostgres
from tests.support.receiving import Answer
from tests.support.service import build_settings, expire_leases

KILLS = 20
SEED = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(10_000)))


@asynccontextmanager
async def loaded_tenant(service, receiver, topic=None):
    """A tenant whose one webhook is told of every job."""
    async with new_tenant(service, topic) as tenant:
        await tenant.register(receiver, event_types=["*"], scopes=["job"], max_in_flight=20)
        yield tenant


@pytest.mark.timeout(400)  # on a machine that does other things too
async def test_kill_at_random_moments_under_load(new_database, new_service, receiver):
    """CRASH_SEED chooses the moments; a failure shows it."""
    print(f"CRASH_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    chance = random.Random(SEED)
    database = await new_database()
    receiver.otherwise = Answer(delay=0.02)
    leased = []
    async with new_service.fork(build_settings(database)) as service, loaded_tenant(service, receiver) as tenant:
        load = Load(tenant)
        async with load.over_http():
            for _ in range(KILLS):
                await receiver.wait_for(len(receiver.arrivals) + chance.randrange(1, 40))
                await asyncio.sleep(chance.random() * 0.02)  # anywhere within an attempt
                await service.kill()
                leased.append(await list_leased(database))
                await expire_leases(database)
                await service.start()
        await receiver.wait_for(all_delivered(receiver, load))
        await tenant.idle()
        ledger = Ledger(receiver)
        print(f"{len(ledger.repeated)} of {len(ledger.by_message)} messages were repeated")  # noqa: T201 - as above
        ledger.assert_nothing_lost(load)
        ledger.assert_only_leased_repeated(leased)
        assert len(load.accepted) > KILLS


async def list_leased(database):
    """Messages in flight or unrecorded, as a dead process left them."""
    async with connected(database) as connection:
        rows = await connection.fetch("SELECT message_id FROM deliveries WHERE lease_token IS NOT NULL")
    return {row["message_id"] for row in rows}


async def test_kill_of_a_consumer_loses_no_record(new_database, broker, topic, new_service, receiver):
    """Records that were read and not committed are read again; messages that were made are not made again."""
    database = await new_database()
    await create_topic(broker, topic, 2)
    kafka = {"kafka_bootstrap_servers": broker, "kafka_topics": topic, "kafka_group_id": topic}
    async with AsyncExitStack() as stack:
        sending = await stack.enter_async_context(new_service(build_settings(database), "api", "deliver"))
        consuming = await stack.enter_async_context(new_service(build_settings(database, **kafka), "ingest"))
        opened = await stack.enter_async_context(opened_topic(broker, topic, 2))
        tenant = await stack.enter_async_context(loaded_tenant(sending, receiver, opened))
        load = Load(tenant)
        async with load.over_kafka():
            for wanted in (20, 40):
                await receiver.wait_for(len(receiver.arrivals) + wanted)
                await consuming.kill()
                consuming.change_group()
                await consuming.start()
            await receiver.wait_for(len(receiver.arrivals) + 20)
        await receiver.wait_for(all_delivered(receiver, load))
        await tenant.quiet()
    ledger = Ledger(receiver)
    ledger.assert_nothing_lost(load)
    ledger.assert_no_duplicates()


async def test_sigterm_under_load_ends_well_and_repeats_nothing(new_database, new_service, receiver):
    receiver.otherwise = Answer(delay=0.1)
    settings = build_settings(await new_database())
    async with new_service(settings) as service, loaded_tenant(service, receiver) as tenant:
        load = Load(tenant)
        async with load.over_http():
            for _ in range(3):
                await receiver.wait_for(len(receiver.arrivals) + 40)
                assert await service.stop() == 0, service.tail()
                await service.start()
        await receiver.wait_for(all_delivered(receiver, load))
        await tenant.idle()
        ledger = Ledger(receiver)
        ledger.assert_nothing_lost(load)
        ledger.assert_no_duplicates()


@pytest.fixture
async def restartable_postgres(tmp_path):
    """A PostgreSQL of this test's own; its address stays the same over restarts."""
    async with HarmedPostgres(tmp_path / "data") as server:
        yield server


async def test_a_database_restart_under_load(restartable_postgres, new_service, receiver):
    """Callers get 503 meanwhile, no attempt starts, and the process goes on by itself."""
    await migrate(restartable_postgres.dsn)
    receiver.otherwise = Answer(delay=0.02)
    faults = []
    async with (
        new_service(build_settings(restartable_postgres.dsn)) as service,
        loaded_tenant(service, receiver) as tenant,
    ):
        load = Load(tenant)
        async with load.over_http():
            for _ in range(2):
                await receiver.wait_for(len(receiver.arrivals) + 50)
                faults.append(asyncio.get_running_loop().time())
                await restartable_postgres.stop()
                faults.append(asyncio.get_running_loop().time())
                await service.wait_until_not_ready()
                await restartable_postgres.start()
                await service.wait_until_ready()
            await receiver.wait_for(len(receiver.arrivals) + 50)
        await receiver.wait_for(all_delivered(receiver, load))
        await tenant.idle()
        assert service.running
        assert await service.stop() == 0, service.tail()
    ledger = Ledger(receiver)
    ledger.assert_nothing_lost(load)
    ledger.assert_only_unrecorded_repeated(faults)
