"""Is the consumer stuck? Progress against end offsets, while everything that it depends on answers (F27).

Belongs here: the watchdog and the lag gauge. Does not belong here: consuming. Stuck means: records wait, Kafka tells so,
the database is not known to be away, and still nothing moves. Idle is not stuck, and neither is waiting for a dependency.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from service.ingest.broker import BrokerUnavailable
from service.ingest.poll import Partition
from service.lifecycle import Clock


class Watched(Protocol):
    """What the watchdog asks of a consumer."""

    @property
    def joined(self) -> bool: ...
    @property
    def assigned(self) -> frozenset[Partition]: ...
    async def find_ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]: ...
    async def find_positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]: ...
    async def ping(self) -> None: ...


class LagReport(Protocol):
    """Where the gauge is."""

    def records_behind(self, topic: str, partition: int, count: int) -> None: ...
    def partition_lost(self, topic: str, partition: int) -> None: ...


class Watchdog:
    """Looks every few seconds. ``current`` is the consumer of the moment, None while there is none."""

    def __init__(self, clock: Clock, report: LagReport, current: Callable[[], Watched | None], every: float) -> None:
        self._clock = clock
        self._report = report
        self._current = current
        self._every = every
        self._progress_at = clock.monotonic()
        self._answered_at = float("-inf")
        self._positions: Mapping[Partition, int] = {}
        self._shown: frozenset[Partition] = frozenset()

    def progressed(self) -> None:
        """The consumer did something: read, stored, or waited for a dependency."""
        self._progress_at = self._clock.monotonic()

    def answered(self) -> None:
        """Kafka answered."""
        self._answered_at = self._clock.monotonic()

    @property
    def stuck_for(self) -> float:
        """Seconds without progress although records wait."""
        return self._clock.monotonic() - self._progress_at

    def answers(self, within: float) -> bool:
        """Whether Kafka answered in the last ``within`` seconds."""
        return self._clock.monotonic() - self._answered_at <= within

    async def run(self, beat: Callable[[], object], stuck_after: float) -> None:
        """Look until cancelled; ``beat`` is called after each look unless the consumer is stuck for so long."""
        while True:
            await self.look()
            if self.stuck_for <= stuck_after:
                beat()
            await asyncio.sleep(self._every)

    async def look(self) -> None:
        """Compare positions with ends once, and show the difference."""
        consumer = self._current()
        assigned = frozenset() if consumer is None else consumer.assigned
        self._forget(assigned)
        try:
            if consumer is not None and assigned:
                self._compare(await consumer.find_ends(assigned), await consumer.find_positions(assigned))
                self.answered()
                return
            if consumer is not None and consumer.joined:  # more consumers than partitions
                await consumer.ping()
                self.answered()
        except BrokerUnavailable:
            self._forget(frozenset())  # an old figure says nothing while Kafka is away
        self.progressed()

    def _compare(self, ends: Mapping[Partition, int], positions: Mapping[Partition, int]) -> None:
        behind = {p: max(0, ends[p] - position) for p, position in positions.items() if p in ends}
        for partition, count in behind.items():
            self._report.records_behind(partition.topic, partition.number, count)
        if positions != self._positions or not any(behind.values()):
            self.progressed()
        self._positions = positions

    def _forget(self, assigned: frozenset[Partition]) -> None:
        for partition in self._shown - assigned:
            self._report.partition_lost(partition.topic, partition.number)
        self._shown = assigned
