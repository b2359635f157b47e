"""What must be survived: a database and a broker that restart, freeze, fill up, move, or do not come to rest."""

import asyncio
import os
import subprocess
from contextlib import asynccontextmanager, suppress

import pytest
from aiokafka import AIOKafkaConsumer

from tests.e2e.fleet import running_fleet
from tests.e2e.load import Load
from tests.support.postgres import migrate
from tests.support.postgres_server import HarmedPostgres
from tests.support.receiving import Answer
from tests.support.service import eventually

pytestmark = pytest.mark.timeout(600)

ROUNDS = 3
FROZEN = 45  # seconds: past the lease
SMALL = "size=192m"


@asynccontextmanager
async def loaded(new_service, settings, opened, receiver):
    """Two processes under load; what is broken meanwhile is noted in the list of instants that it gives."""
    receiver.otherwise = Answer(delay=0.02)
    async with running_fleet(new_service, settings, opened, 2) as fleet:
        await fleet.register(receiver)
        load, faults = Load(fleet.tenant), []
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            yield fleet, faults
            await fleet.goes_on(receiver)
        (await fleet.settled(receiver, load, within=180)).assert_only_unrecorded_repeated(faults)


def now():
    return asyncio.get_running_loop().time()


@pytest.fixture
async def harmed(tmp_path):
    async with HarmedPostgres(tmp_path / "data") as server:
        await migrate(server.dsn)
        yield server


@pytest.fixture
def own_settings(settings, harmed):
    return {**settings, "WEBHOOKD_DATABASE_URL": harmed.dsn}


async def test_a_database_that_restarts(new_service, own_settings, opened, receiver, harmed):
    async with loaded(new_service, own_settings, opened, receiver) as (fleet, faults):
        for _ in range(ROUNDS):
            faults.append(now())
            await harmed.restart()
            await fleet.goes_on(receiver)


async def test_a_database_that_freezes_past_the_leases(new_service, own_settings, opened, receiver, harmed):
    """No attempt starts that could not be recorded, and what was answered is recorded before anybody rescues it."""
    async with loaded(new_service, own_settings, opened, receiver) as (_, faults):
        faults.append(now())
        harmed.freeze()
        await asyncio.sleep(FROZEN)
        harmed.thaw()


async def test_a_database_that_cuts_every_connection(new_service, own_settings, opened, receiver, harmed):
    async with loaded(new_service, own_settings, opened, receiver) as (fleet, faults):
        for _ in range(10 * ROUNDS):
            faults.append(now())
            await harmed.cut()
            await asyncio.sleep(0.3)
        await fleet.goes_on(receiver)


async def test_a_database_that_moves(new_service, own_settings, opened, receiver, harmed, tmp_path):
    """It stops, its files are carried to another place, and another server takes its name."""
    async with loaded(new_service, own_settings, opened, receiver) as (_, faults):
        faults.append(now())
        await harmed.move(tmp_path / "elsewhere")


@pytest.fixture
def small_disk(tmp_path):
    """A file system of its own, which is soon full."""
    directory = tmp_path / "small"
    directory.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", SMALL, "tmpfs", directory], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    yield directory
    subprocess.run(["umount", "--lazy", directory], check=True)


async def test_a_database_whose_disk_is_full(new_service, settings, opened, receiver, small_disk):
    """PostgreSQL refuses writes, and ends when it has no room for its log; with room again it goes on."""
    async with HarmedPostgres(small_disk / "data") as harmed:
        await migrate(harmed.dsn)
        own = {**settings, "WEBHOOKD_DATABASE_URL": harmed.dsn}
        async with loaded(new_service, own, opened, receiver) as (fleet, faults):
            faults.append(now())
            filler = small_disk / "filler"
            await fill(filler)
            await eventually(lambda: was_refused(fleet), within=180)
            await asyncio.sleep(10)
            filler.unlink()
            if not harmed.running:
                await harmed.restart()


async def was_refused(fleet):
    """Both processes have met the full disk, or the server that it ended."""
    return all("database_unavailable" in service.tail() for service in fleet.services)


async def fill(path):
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(1 << 16)):
            await asyncio.sleep(0)
    os.sync()


@pytest.mark.parametrize("kill", [False, True], ids=["in order", "killed"])
async def test_a_broker_that_restarts(new_service, settings, opened, receiver, kafka, kill):
    async with loaded(new_service, settings, opened, receiver) as (fleet, _):
        for _ in range(ROUNDS):
            await kafka.restart(kill=kill)
            await fleet.goes_on(receiver)


async def test_a_broker_that_freezes_for_a_minute(new_service, settings, opened, receiver, kafka):
    async with loaded(new_service, settings, opened, receiver):
        kafka.freeze()
        await asyncio.sleep(60)
        kafka.thaw()


async def test_a_group_that_is_rebalanced_every_second(new_service, settings, opened, receiver, kafka, topic):
    """A member that reads nothing comes and goes."""
    async with loaded(new_service, settings, opened, receiver):
        for _ in range(20):
            guest = AIOKafkaConsumer(topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic)
            await guest.start()
            await asyncio.sleep(1)
            await guest.stop()
