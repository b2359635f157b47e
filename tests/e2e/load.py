"""Load for the fault tests, and what has to be true after a fault, counted at the receiver.

Belongs here: a stream of finished jobs, and the ledger of what arrived. Does not belong here: the faults.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import ClientError
from aiokafka.errors import KafkaError

from tests.e2e.story import Tenant, completed
from tests.support.receiving import Arrival, Receiver
from tests.support.service import Refused

UNRECORDED = 6.0
"""Seconds before a fault in which an answered attempt may not have been recorded yet, on a busy machine."""
ON_THE_WIRE = 6.0
"""Seconds that a busy receiver may take to read what a process that is gone had sent."""


class Load:
    """Jobs that finish one after the other; `accepted` are those that the service, or the broker, has taken."""

    def __init__(self, tenant: Tenant, pause: float = 0.02, name: str = "job") -> None:
        self.tenant = tenant
        self._pause = pause
        self._name = name
        self._numbers = itertools.count(1)
        self.accepted: set[str] = set()

    @asynccontextmanager
    async def over_http(self) -> AsyncIterator[None]:
        """Post events, each again until it is accepted."""
        async with self._running(self._post):
            yield

    @asynccontextmanager
    async def over_kafka(self) -> AsyncIterator[None]:
        """Write records, each again until the broker has it."""
        async with self._running(self._write):
            yield

    @asynccontextmanager
    async def _running(self, send) -> AsyncIterator[None]:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._run(send, stop))
            try:
                yield
            finally:
                stop.set()

    async def _run(self, send, stop: asyncio.Event) -> None:
        while not stop.is_set():
            job_ids = [f"{self._name}-{next(self._numbers)}" for _ in range(3)]
            if await send(job_ids, stop):
                self.accepted.update(job_ids)
            await asyncio.sleep(self._pause)

    async def _post(self, job_ids: list[str], stop: asyncio.Event) -> bool:
        events = [self.tenant.complete(completed(job_id)) for job_id in job_ids]
        while True:
            try:
                await self.tenant.api.post("/v1/events", events)
            except (ClientError, Refused) as error:
                if isinstance(error, Refused) and error.status != 503:
                    raise
                if stop.is_set():
                    return False
                await asyncio.sleep(0.02)
            else:
                return True

    async def _write(self, job_ids: list[str], stop: asyncio.Event) -> bool:
        events = [completed(job_id) for job_id in job_ids]
        while True:
            try:
                await self.tenant.produce(*events)
            except KafkaError:  # a producer whose broker does not answer writes again
                if stop.is_set():
                    return False
            else:
                return True


class Ledger:
    """What arrived at a receiver, behind the first `since` requests, by message."""

    def __init__(self, receiver: Receiver, since: int = 0) -> None:
        self.by_message: dict[str, list[Arrival]] = defaultdict(list)
        for arrival in receiver.arrivals[since:]:
            self.by_message[arrival.message_id].append(arrival)

    @property
    def jobs(self) -> set[str]:
        """Jobs whose message was accepted."""
        told = (arrivals for arrivals in self.by_message.values() if accepted(arrivals))
        return {arrivals[0].data["job"]["job_id"] for arrivals in told if arrivals[0].data["scope"] == "job"}

    @property
    def repeated(self) -> list[list[Arrival]]:
        return [arrivals for arrivals in self.by_message.values() if len(arrivals) > 1]

    def assert_nothing_lost(self, load: Load) -> None:
        assert not load.accepted - self.jobs, f"lost {sorted(load.accepted - self.jobs)[:10]}"
        jobs = [arrivals[0].data["job"]["job_id"] for arrivals in self.by_message.values()]
        assert len(jobs) == len(set(jobs)), "a job has two messages"

    def assert_no_duplicates(self) -> None:
        assert not self.repeated, [str(each) for each in self.repeated[0]]

    def assert_only_unrecorded_repeated(self, faults: list[float]) -> None:
        """Every arrival that was repeated was in flight, or just answered, at one of the `faults`."""
        for arrivals in self.repeated:
            assert len({arrival.body for arrival in arrivals}) == 1, "another body under the same id"
            for arrival in arrivals[:-1]:
                assert any(may_be_unrecorded(arrival, fault) for fault in faults), describe(arrivals, faults)

    def assert_only_leased_repeated(self, leased: list[set[str]]) -> None:
        """No message came again more often than it was found leased where its sender had died: `leased`, fault by fault."""
        for message_id, arrivals in self.by_message.items():
            assert len({arrival.body for arrival in arrivals}) == 1, "another body under the same id"
            deaths = sum(message_id in each for each in leased)
            assert len(arrivals) <= 1 + deaths, f"leased at {deaths} deaths; {describe(arrivals, [])}"


def may_be_unrecorded(arrival: Arrival, fault: float) -> bool:
    """Whether it was in flight at a fault, or answered just before."""
    answered_at = float("inf") if arrival.answered_at is None else arrival.answered_at
    return arrival.at < fault + ON_THE_WIRE and answered_at > fault - UNRECORDED


def accepted(arrivals: list[Arrival]) -> bool:
    return any(arrival.accepted for arrival in arrivals)


def describe(arrivals: list[Arrival], faults: list[float]) -> str:
    times = ", ".join(f"{fault:.3f}" for fault in faults)
    return f"faults at {times}; arrivals " + "; ".join(f"{arrival.at:.3f} {arrival}" for arrival in arrivals)


def all_delivered(receiver: Receiver, load: Load):
    """A condition for `receiver.wait_for`: every accepted job's message was accepted."""
    told: set[str] = set()
    seen = 0

    def reached() -> bool:
        nonlocal seen
        told.update(arrival.data["job"]["job_id"] for arrival in receiver.arrivals[seen:])
        seen = len(receiver.arrivals)
        return told >= load.accepted

    return reached
