"""The Kafka worker: what it reads goes through the ingest transaction, nothing else moves an offset.

Belongs here: the order of things, and what happens when Kafka or the database are away. Does not belong here: aiokafka
(broker), reading a record (reading), halving a poll (bisecting), the transaction (applying), the watchdog (watching).

The database is the truth about offsets: on every assignment the fence is written and the stored offset sought. Kafka's
own copy is for lag tools. So every trouble has one answer: forget what is under way and read on from what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol, TypeVar

from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome
from service.ingest.bisecting import Offer
from service.ingest.broker import BrokerUnavailable, Consumer, Fetched, OffsetLost, Unreadable
from service.ingest.placing import Holding, Missed, Offsets, place
from service.ingest.poison import DeadLetter, Reason
from service.ingest.poll import Ingests, Partition, Poll, PollResult, Record
from service.ingest.reading import Reader
from service.ingest.spans import Consuming
from service.ingest.watching import LagReport, Watchdog
from service.lifecycle import Clock, Heartbeats, Rng, Stop
from service.ports import StoreUnavailable

T = TypeVar("T")
MISSED_RECORDS = "missed_records"


class IngestReport(LagReport, Protocol):
    """What is counted; ``service.telemetry.Telemetry`` is one."""

    def job_events(self, outcome: str, count: int = 1) -> None: ...
    def event_anomalies(self, kind: str, count: int = 1) -> None: ...
    def dead_letters(self, count: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Sizes and waits, in seconds."""

    max_records: int = 500  # of one poll, hence of one transaction
    poll_wait: float = 0.5
    shortest_pause: float = 0.25
    longest_pause: float = 10.0
    commit_every: float = 1.0
    look_every: float = 2.0
    answer_within: float = 20.0  # for readiness
    join_within: float = 60.0  # without an assignment, or an answer, for so long, the consumer is made anew
    renew_after: float = 20.0  # stuck for so long, the consumer is made anew
    stuck_after: float = 60.0  # and for so long, liveness fails; above what a frozen database takes to be noticed
    heartbeat: timedelta = timedelta(seconds=60)
    to_leave: float = 3.0
    unreadable_tries: int = 3


class KafkaIngest:
    """A Worker. One process has at most one; several processes share the partitions."""

    name = "kafka_ingest"

    def __init__(
        self,
        connect: Callable[[], Consumer],
        reader: Reader,
        ingestor: Ingests,
        offsets: Offsets,
        report: IngestReport,
        *,
        clock: Clock,
        rng: Rng,
        heartbeats: Heartbeats,
        tell: Callable[..., object],
        limits: Limits = Limits(),
        on_dead_letter: Callable[[], object] = lambda: None,
        spans: Consuming | None = None,
    ) -> None:
        """``connect`` makes a consumer that is not open yet; ``tell(event, **fields)`` takes what is worth a log line."""
        self.instance = rng.token(8).hex()
        self._connect = connect
        self._reader = reader
        self._ingestor = ingestor
        self._offsets = offsets
        self._report = report
        self._clock = clock
        self._rng = rng
        self._heartbeats = heartbeats
        self._tell = tell
        self._limits = limits
        self._on_dead_letter = on_dead_letter
        self._spans = spans
        self._consumer: Consumer | None = None
        self._claims = 0
        self._holding = Holding("")
        self._uncommitted: dict[Partition, int] = {}
        self._failures = 0
        self._stumbles: dict[Partition, tuple[int, int]] = {}
        self._opened_at = self._joined_at = 0.0
        self._opening = False
        self._watchdog = Watchdog(clock, report, lambda: self._consumer, limits.look_every)

    async def kafka_answers(self) -> bool:
        """For readiness: whether Kafka answered lately."""
        return self._watchdog.answers(self._limits.answer_within)

    async def run(self, stop: Stop) -> None:
        """Consume until the stop; then finish the transaction under way, tell Kafka, and leave the group."""
        with self._heartbeats.watch(self.name, self._limits.heartbeat) as beat:
            async with asyncio.TaskGroup() as group:
                beside = [
                    group.create_task(self._watchdog.run(beat, self._limits.stuck_after)),
                    group.create_task(self._commit_now_and_then()),
                ]
                try:
                    async with asyncio.timeout(None) as limit:
                        beside.append(group.create_task(self._end_in_time(stop, limit)))
                        await self._consume(stop)
                except TimeoutError:
                    self._tell("ingest_cut_off")
                for task in beside:
                    task.cancel()

    async def _end_in_time(self, stop: Stop, limit: asyncio.Timeout) -> None:
        """A transaction that does not end in time is rolled back; what it held is read again after the restart."""
        await stop.wait()
        seconds = 0.0 if self._opening else max(0.0, stop.remaining() - 2 * self._limits.to_leave)
        limit.reschedule(asyncio.get_running_loop().time() + seconds)

    async def _consume(self, stop: Stop) -> None:
        while not stop.is_set():
            self._consumer = consumer = self._connect()
            try:
                await self._open(consumer)
                await self._read(consumer, stop)
            except BrokerUnavailable as error:
                self._tell("kafka_unavailable", reason=str(error))
            finally:
                self._consumer = None
                await self._leave(consumer, stop)
            await stop.pause(self._next_pause())

    async def _open(self, consumer: Consumer) -> None:
        self._opening = True
        try:
            await consumer.open()
        finally:
            self._opening = False
        self._watchdog.answered()

    async def _leave(self, consumer: Consumer, stop: Stop) -> None:
        if (
            self._uncommitted
            and stop.is_set()
            and consumer.joined
            and self._watchdog.answers(self._limits.answer_within)
        ):
            with suppress(BrokerUnavailable):
                await consumer.commit(self._uncommitted, min(1.0, self._limits.to_leave))
        await consumer.close(self._limits.to_leave)

    async def _read(self, consumer: Consumer, stop: Stop) -> None:
        epoch = -1
        self._opened_at = self._joined_at = self._clock.monotonic()
        while not stop.is_set():
            self._check(consumer)
            try:
                if consumer.epoch != epoch:
                    epoch = consumer.epoch
                    await self._take_over(consumer, stop)
                else:
                    await self._read_once(consumer, stop)
            except OffsetLost:
                epoch = -1
                await stop.pause(self._limits.shortest_pause)
            except Unreadable as error:
                await self._read_carefully(consumer, stop, error)

    def _check(self, consumer: Consumer) -> None:
        """A consumer can stop without a word (F27): what does not move is made anew."""
        now = self._clock.monotonic()
        if consumer.joined:
            self._joined_at = now
        if now - self._joined_at > self._limits.join_within:
            raise BrokerUnavailable("no assignment")
        if not self._watchdog.answers(self._limits.join_within):
            raise BrokerUnavailable("no answer")  # perhaps it is at another address now
        if min(self._watchdog.stuck_for, now - self._opened_at) > self._limits.renew_after:
            raise BrokerUnavailable("no progress")

    async def _take_over(self, consumer: Consumer, stop: Stop) -> None:
        """Write the fence, then read on from where the fence's row says."""
        assigned, self._claims = consumer.assigned, self._claims + 1
        self._holding = holding = Holding(f"{self.instance}:{self._claims}")
        self._uncommitted = {}
        if not assigned:
            return
        stored = await self._patiently(consumer, stop, lambda: self._offsets.claim(holding.owner, assigned))
        if stored is None:
            return
        bounds = await consumer.find_bounds(assigned)
        self._watchdog.answered()
        missed = await self._patiently(consumer, stop, lambda: place(self._offsets, holding, stored, bounds))
        if missed is None:
            return
        for lost in missed:
            self._tell_missed(lost)
        for partition, offset in holding.next_offsets.items():
            consumer.seek(partition, offset)
        consumer.resume(assigned)
        self._tell("partitions_assigned", count=len(assigned), owner=holding.owner)

    def _tell_missed(self, lost: Missed) -> None:
        self._report.event_anomalies(MISSED_RECORDS, lost.records or 1)
        self._tell(
            MISSED_RECORDS, topic=lost.partition.topic, partition=lost.partition.number, missed=lost.records,
            stored_offset=lost.stored_offset, first_offset=lost.bounds.first, end_offset=lost.bounds.end,
        )  # fmt: skip

    async def _read_once(self, consumer: Consumer, stop: Stop) -> None:
        fetched = await consumer.poll(self._limits.poll_wait, self._limits.max_records)
        if consumer.joined:
            self._failures = 0
        if fetched:
            self._watchdog.answered()
            await self._ingest(consumer, stop, fetched)

    async def _ingest(self, consumer: Consumer, stop: Stop, fetched: Mapping[Partition, Fetched]) -> None:
        records: list[Record] = []
        for partition, batch in fetched.items():
            records += self._reader.read(partition, batch.records, self._holding.catch_up.get(partition, 0))
        positions = {partition: batch.next_offset for partition, batch in fetched.items()}
        await self._store(consumer, stop, Poll(tuple(records), positions, self._holding.owner))

    async def _store(self, consumer: Consumer, stop: Stop, poll: Poll) -> None:
        lost: set[Partition] = set()

        def done(part: Poll, result: PollResult) -> None:
            lost.update(result.lost)
            self._count(part, result)

        offer, epoch = Offer(poll, done, self._tell_culprit), consumer.epoch
        with self._spans.consume(poll.records) if self._spans else nullcontext():
            stored = await self._patiently(consumer, stop, lambda: offer.run(self._ingestor.ingest))
        if stored and consumer.epoch == epoch:
            self._advance(poll, lost)

    def _advance(self, poll: Poll, lost: set[Partition]) -> None:
        if lost:  # evicted without knowing it: somebody else reads these now
            raise BrokerUnavailable("partitions have another owner")
        self._watchdog.progressed()
        self._holding.next_offsets.update(poll.positions)
        self._uncommitted.update(poll.positions)

    async def _patiently(self, consumer: Consumer, stop: Stop, work: Callable[[], Awaitable[T]]) -> T | None:
        """Do what needs the database. While it is away, poll on with everything paused: membership is kept.

        None when the work was given up: the assignment changed, or the stop came while the database was away.
        """
        epoch, failures = consumer.epoch, 0
        while True:
            try:
                result = await work()
            except StoreUnavailable as error:
                failures += 1
                await self._wait_for_store(consumer, stop, failures, error)
                if stop.is_set() or consumer.epoch != epoch:
                    return None
            else:
                if failures:
                    self._tell("database_back", failures=failures)
                    consumer.resume(self._holding.next_offsets)
                return result

    async def _wait_for_store(self, consumer: Consumer, stop: Stop, failures: int, error: Exception) -> None:
        if failures == 1:
            self._tell("database_unavailable", reason=str(error))
        consumer.pause()
        epoch, due = consumer.epoch, self._clock.monotonic() + self._pause_after(failures)
        while not stop.is_set() and consumer.epoch == epoch and (left := due - self._clock.monotonic()) > 0:
            with suppress(Unreadable, OffsetLost):
                await consumer.poll(min(left, self._limits.poll_wait), 1)
            self._watchdog.progressed()

    def _next_pause(self) -> float:
        self._failures += 1
        return self._pause_after(self._failures)

    def _pause_after(self, failures: int) -> float:
        longest = min(self._limits.longest_pause, self._limits.shortest_pause * 2.0 ** min(failures, 16))
        return longest * (0.5 + self._rng.uniform() / 2)

    def _count(self, part: Poll, result: PollResult) -> None:
        for outcome, count in result.counts.items():
            self._report.job_events(outcome, count)
        for record in part.records:
            if isinstance(record.content, JobEvent):
                for kind in record.content.anomalies:
                    self._report.event_anomalies(kind)
        for kind, count in result.anomalies.items():
            self._report.event_anomalies(kind, count)
        if letters := result.counts[EventOutcome.DEAD_LETTER]:
            self._report.dead_letters(letters)
            self._on_dead_letter()

    def _tell_culprit(self, record: Record, error: Exception) -> None:
        topic, number = record.partition
        self._tell("record_failed", topic=topic, partition=number, offset=record.offset, exc_info=error)

    async def _read_carefully(self, consumer: Consumer, stop: Stop, error: Exception) -> None:
        """Something in some partition cannot be read, and others were dropped with it: go on one record at a time."""
        self._tell("record_unreadable", reason=str(error))
        for partition, offset in self._holding.next_offsets.copy().items():
            consumer.seek(partition, offset)
            try:
                fetched = await consumer.poll(self._limits.poll_wait, 1, partition)
            except Unreadable as culprit:
                await self._stumble(consumer, stop, partition, culprit)
            else:
                if fetched:
                    await self._ingest(consumer, stop, fetched)

    async def _stumble(self, consumer: Consumer, stop: Stop, partition: Partition, error: Exception) -> None:
        """The same record unreadable some times over is a dead letter without bytes; aiokafka does not give them out."""
        offset = self._holding.next_offsets[partition]
        before, tries = self._stumbles.get(partition, (offset, 0))
        self._stumbles[partition] = (offset, tries + 1 if before == offset else 1)
        if self._stumbles[partition][1] >= self._limits.unreadable_tries:
            letter = DeadLetter(Reason.SCHEMA, f"could not be read: {error}")
            poll = Poll((Record(partition, offset, letter),), {partition: offset + 1}, self._holding.owner)
            await self._store(consumer, stop, poll)
            offset = self._holding.next_offsets[partition]
        consumer.seek(partition, offset)

    async def _commit_now_and_then(self) -> None:
        """Tell Kafka how far we are, for lag tools. Never in the way of anything, hence never insisted on."""
        while True:
            await asyncio.sleep(self._limits.commit_every)
            consumer, positions = self._consumer, self._uncommitted.copy()
            if consumer is None or not positions:
                continue
            with suppress(BrokerUnavailable):
                await consumer.commit(positions, 5 * self._limits.commit_every)
                self._uncommitted = {p: o for p, o in self._uncommitted.items() if positions.get(p) != o}
