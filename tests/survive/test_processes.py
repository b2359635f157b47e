"""What must be survived: processes that are killed, frozen, told to end, and replaced."""

import asyncio
import itertools
import os
import random
from dataclasses import replace

import pytest

from tests.e2e.fleet import agent_of, assert_only_ended_repeated, running_fleet
from tests.e2e.load import Load
from tests.e2e.story import completed
from tests.kafka.conftest import PARTITIONS
from tests.support.receiving import Answer
from tests.support.service import eventually

pytestmark = pytest.mark.timeout(1800)

ROLLOUTS = int(os.environ.get("SURVIVE_ROLLOUTS", "10"))
KILLS = int(os.environ.get("SURVIVE_KILLS", "100"))
SEED = int(os.environ.get("CRASH_SEED", random.SystemRandom().randrange(10_000)))
TENANTS = 12  # each has at most 50 attempts at one host


async def test_rolling_restarts_in_a_row(settings, opened, new_service, receiver):
    """Three processes, each ended and started again; again and again, with nothing lost or repeated."""
    receiver.otherwise = Answer(delay=0.05)
    async with running_fleet(new_service, settings, opened, 3, fork=False) as fleet:
        await fleet.register(receiver)
        load = Load(fleet.tenant)
        async with load.over_kafka():
            for _ in range(ROLLOUTS):
                await fleet.goes_on(receiver)
                await fleet.roll()
            await fleet.goes_on(receiver)
        (await fleet.settled(receiver, load)).assert_no_duplicates()


async def test_kill_of_either_of_two_at_random_moments(settings, opened, new_service, receiver):
    """CRASH_SEED chooses who and when; a failure shows it. Leases of the dead run out by themselves."""
    print(f"CRASH_SEED={SEED}")  # noqa: T201 - pytest shows it with a failure
    chance = random.Random(SEED)
    receiver.otherwise = Answer(delay=0.02)
    async with running_fleet(new_service, settings, opened, 2) as fleet:
        await fleet.register(receiver)
        posted = [Load(fleet.at(number), name=f"posted-{number}") for number in (0, 1)]
        written = Load(fleet.tenant, name="written", pause=0.1)
        async with posted[0].over_http(), posted[1].over_http(), written.over_kafka():
            for _ in range(KILLS):
                await receiver.wait_for(len(receiver.arrivals) + chance.randrange(1, 40))
                await asyncio.sleep(chance.random() * 0.02)  # anywhere within an attempt
                member = chance.choice(fleet.members)
                await member.kill()
                await member.start()
            await receiver.wait_for(len(receiver.arrivals) + 40)
        ledger = await fleet.settled(receiver, *posted, written)
        print(f"{len(ledger.repeated)} of {len(ledger.by_message)} messages were repeated")  # noqa: T201 - as above
        assert_only_ended_repeated(ledger, fleet.ends)


async def test_a_process_that_is_frozen_past_its_leases(settings, opened, new_service, receiver):
    """Another one sends what it held; thawed, it sends nothing of that again."""
    receiver.otherwise = Answer(delay=0.05)
    async with running_fleet(new_service, settings, opened, 2) as fleet:
        fleet.tenant = fleet.at(1)
        await fleet.register(receiver)
        load = Load(fleet.tenant)
        frozen, other = fleet.members
        async with load.over_kafka():
            await fleet.until_all_send(receiver)
            receiver.otherwise = Answer(delay=2)  # so that it holds leases when it is frozen
            await eventually(lambda: frozen.service.fetch_metric("deliveries_in_flight"))
            frozen.service.freeze()
            frozen.mark_end()
            receiver.otherwise = Answer(delay=0.05)
            await eventually(lambda: other.service.fetch_metric("leases_expired_total"), within=90)
            await asyncio.sleep(3)
            frozen.service.thaw()
            await fleet.goes_on(receiver)
        assert_only_ended_repeated(await fleet.settled(receiver, load), fleet.ends)


async def test_sigterm_with_500_in_flight(settings, opened, new_service, receiver):
    async with running_fleet(new_service, settings, opened, 2) as fleet:
        own = fleet.tenant.api
        tenants = [replace(fleet.at(1), api=own.of_tenant(f"{own.tenant}-{number}")) for number in range(TENANTS)]
        loads = [Load(tenant, name=f"load-{number}") for number, tenant in enumerate(tenants)]
        one = fleet.members[0]
        for tenant in tenants:
            await tenant.register(receiver, event_types=["*"], scopes=["job"], max_in_flight=100)
        await each_has_sent_to_each(fleet, tenants, receiver)
        receiver.otherwise = Answer(delay=12)
        for number, load in enumerate(loads):
            load.accepted.update(f"load-{number}-{each}" for each in range(120))
        await asyncio.gather(*(load.tenant.produce(*map(completed, load.accepted)) for load in loads))

        async def many_in_flight():
            return await one.service.fetch_metric("deliveries_in_flight") >= 500

        await eventually(many_in_flight)
        await one.stop()
        receiver.otherwise = Answer()
        await one.start()
        (await fleet.settled(receiver, *loads)).assert_no_duplicates()


async def each_has_sent_to_each(fleet, tenants, receiver):
    """Until it has sent something, a process tries a receiver one by one."""
    wanted = {(member.agent, tenant.tenant_id) for member in fleet.members for tenant in tenants}
    for turn in itertools.count():
        for tenant in tenants:
            for partition in range(PARTITIONS):
                await tenant.produce(completed(f"{tenant.tenant_id}-{turn}-{partition}"), partition=partition)
        await receiver.wait_for((turn + 1) * len(tenants) * PARTITIONS)
        if wanted <= {(agent_of(arrival), arrival.data["tenant_id"]) for arrival in receiver.arrivals}:
            return
