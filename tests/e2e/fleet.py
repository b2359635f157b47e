"""Several processes of the service on one database and one broker; each says in what it sends who it is.

Belongs here: processes by number and by life, and what has to be true of what each of them sent. Does not belong here:
the faults.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from tests.e2e.load import Ledger, Load, all_delivered, describe, may_be_unrecorded
from tests.e2e.story import Tenant, Topic, new_tenant
from tests.support.receiving import Arrival, Receiver
from tests.support.service import NewService, Service, build_settings, eventually


class Member:
    """One process of a fleet, life after life: `member-2.1` is the second one's first."""

    def __init__(self, service: Service, number: int) -> None:
        self.service = service
        self._number = number
        self._life = 0
        self.ends: dict[str, float] = {}  # the lives that SIGKILL, SIGSTOP or a short drain ended, and when

    @property
    def agent(self) -> str:
        return f"member-{self._number}.{self._life}"

    async def start(self) -> None:
        """Return when it is ready."""
        self._life += 1
        self.service.settings["WEBHOOKD_USER_AGENT"] = self.agent
        await self.service.start()

    async def stop(self) -> None:
        """SIGTERM, and a good end: what it had sent is recorded."""
        assert await self.service.stop() == 0, self.service.tail()

    async def kill(self) -> None:
        await self.service.kill()
        self.mark_end()

    def mark_end(self) -> None:
        """From now on this life sends nothing more, and what it had in flight or unrecorded may come again."""
        self.ends[self.agent] = asyncio.get_running_loop().time()


class Fleet:
    """Members with one set of settings, and a tenant to whom all of them are one service."""

    def __init__(self, members: list[Member], tenant: Tenant) -> None:
        self.members = members
        self.tenant = tenant

    @property
    def services(self) -> list[Service]:
        return [member.service for member in self.members]

    @property
    def ends(self) -> dict[str, float]:
        return {agent: at for member in self.members for agent, at in member.ends.items()}

    async def register(self, receiver: Receiver, **settings: Any) -> Any:
        """A webhook that is told of every job."""
        told = {"event_types": ["*"], "scopes": ["job"], "max_in_flight": 30}
        return await self.tenant.register(receiver, **{**told, **settings})

    def at(self, number: int) -> Tenant:
        """The tenant as it is seen at the API of one member."""
        return replace(self.tenant, api=self.tenant.api.of_service(self.services[number]))

    async def roll(self) -> None:
        """End and start one after the other, as a rollout does."""
        for member in self.members:
            await member.stop()
            await member.start()

    async def until_all_send(self, receiver: Receiver, after: int = 0) -> None:
        """Return when each has sent something in this life, behind the first `after` requests."""
        agents = {member.agent for member in self.members}
        seen: set[str] = set()

        def all_sent() -> bool:
            nonlocal after
            seen.update(agent_of(arrival) for arrival in receiver.arrivals[after:])
            after = len(receiver.arrivals)
            return agents <= seen

        await receiver.wait_for(all_sent, within=90)

    async def goes_on(self, receiver: Receiver) -> None:
        """Return when every process has sent something more, none of them started again by anybody."""
        await self.until_all_send(receiver, len(receiver.arrivals))

    async def nothing_in_flight(self) -> bool:
        return await self.sum_metric("deliveries_in_flight") == 0

    async def sum_metric(self, name: str, **labels: str) -> float:
        return sum([await service.fetch_metric(name, **labels) or 0 for service in self.services])

    async def settled(self, receiver: Receiver, *loads: Load, within: float = 120) -> Ledger:
        """What arrived, once every accepted job was told and nothing is on its way any more."""
        for load in loads:
            await receiver.wait_for(all_delivered(receiver, load), within=within)
        for load in loads:
            await eventually(load.tenant._is_idle, within=within)
        ledger = Ledger(receiver)
        for load in loads:
            assert load.accepted
            ledger.assert_nothing_lost(load)
        return ledger


@asynccontextmanager
async def running_fleet(
    new_service: NewService, settings: Mapping[str, str], topic: Topic, size: int, *own: Mapping[str, str], fork=True
) -> AsyncIterator[Fleet]:
    """`size` processes with all roles and ports of their own; `own` are further settings, member by member."""
    members = []
    for number in range(1, size + 1):
        extra = own[number - 1] if number <= len(own) else {}
        combined = {**settings, **build_ports(), **extra}
        service = new_service.fork(combined) if fork else new_service(combined)
        members.append(Member(service, number))
    await asyncio.gather(*(member.start() for member in members))
    async with new_tenant(members[0].service, topic) as tenant:
        yield Fleet(members, tenant)


def build_ports() -> dict[str, str]:
    return {name: value for name, value in build_settings().items() if name.endswith("_PORT")}


def agent_of(arrival: Arrival) -> str:
    return arrival.headers["user-agent"]


def assert_only_ended_repeated(ledger: Ledger, ends: Mapping[str, float]) -> None:
    """Who was repeated was sent by a life that was ended, in flight or unrecorded at its end; the bytes are the same."""
    for arrivals in ledger.repeated:
        assert len({arrival.body for arrival in arrivals}) == 1, "another body under the same id"
        for arrival in arrivals[:-1]:
            end = ends.get(agent_of(arrival))
            assert end is not None, f"{agent_of(arrival)} was not ended: {describe(arrivals, [])}"
            assert may_be_unrecorded(arrival, end), describe(arrivals, [end])
