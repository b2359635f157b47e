"""What must be survived: a machine whose clock is stepped, whose descriptors are used up, whose resolver is gone."""

import asyncio
import resource
from pathlib import Path

import pytest

from tests.e2e.fleet import running_fleet
from tests.e2e.load import Load
from tests.support.dns import SERVFAIL, serve_names
from tests.support.faketime import step_clock_by
from tests.support.receiving import Answer

pytestmark = pytest.mark.timeout(600)

NAME = "receiver.example"


async def test_a_clock_that_is_stepped_an_hour_either_way(settings, opened, new_service, receiver, tmp_path):
    """Nothing is sent early, late or with another time than the database's."""
    offset = tmp_path / "offset"
    offset.write_text("+0\n")
    clock = step_clock_by(offset)
    async with running_fleet(new_service, settings, opened, 2, clock, clock, fork=False) as fleet:
        await fleet.register(receiver)
        load = Load(fleet.tenant)
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            for step in ("+3600\n", "-3600\n", "+0\n"):
                offset.write_text(step)
                await asyncio.sleep(8)  # every loop has looked at its clock
                await fleet.goes_on(receiver)
        (await fleet.settled(receiver, load)).assert_no_duplicates()
        assert all(abs(arrival.timestamp - arrival.received_at) < 60 for arrival in receiver.arrivals)


async def test_descriptors_that_are_used_up(settings, opened, new_service, receiver):
    """No connection can be opened for a while; what fails of itself is no receiver's fault, and nothing is lost."""
    receiver.otherwise = Answer(headers={"connection": "close"})
    async with running_fleet(new_service, settings, opened, 2, fork=False) as fleet:
        await fleet.register(receiver)
        load = Load(fleet.tenant)
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            limits = [exhaust(service.pid) for service in fleet.services]
            await asyncio.sleep(10)
            for service, limit in zip(fleet.services, limits, strict=True):
                resource.prlimit(service.pid, resource.RLIMIT_NOFILE, limit)
            await fleet.goes_on(receiver)
        (await fleet.settled(receiver, load)).assert_no_duplicates()


def exhaust(pid):
    """Let the process open nothing more; returns the limits that it had."""
    _, hard = before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(list(Path(f"/proc/{pid}/fd").iterdir())), hard))
    return before


@pytest.mark.parametrize("silent", [False, True], ids=["dead", "silent"])
async def test_a_resolver_that_is_gone(settings, opened, new_service, receiver, silent):
    async with serve_names(**{NAME: ("127.0.0.1",)}) as names:
        names.ttl = 1
        own = {**settings, "WEBHOOKD_DNS_SERVERS": names.address}
        async with running_fleet(new_service, own, opened, 2) as fleet:
            await fleet.register(receiver, url=receiver.url.replace("127.0.0.1", NAME))
            load = Load(fleet.tenant)
            async with load.over_kafka():
                await fleet.until_all_send(receiver)
                receiver.otherwise = Answer(headers={"connection": "close"})
                names.silent = {NAME} if silent else set()
                names.codes = {} if silent else {NAME: SERVFAIL}
                await asyncio.sleep(15)
                names.silent, names.codes = set(), {}
                await fleet.goes_on(receiver)
            (await fleet.settled(receiver, load)).assert_no_duplicates()
