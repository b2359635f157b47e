"""The only module that knows aiokafka: a consumer in a group whose offsets live elsewhere, and a producer.

Belongs here: connecting, and what keeps aiokafka's surprises away from the worker (each is named where it is met).
Does not belong here: what is done with records, where offsets are stored, when to try again (worker).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.abc import AbstractTokenProvider, ConsumerRebalanceListener
from aiokafka.errors import (
    CorruptRecordException,
    IllegalStateError,
    KafkaError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    RecordTooLargeError,
)

from service.ingest.poll import Headers, LogBounds, Partition
from service.ingest.reading import RawRecord

MAX_PARTITION_FETCH_BYTES = 2 << 20  # two of the biggest records that are events
# The last row is what aiokafka's own races look like from outside.
_TROUBLE = (
    *(KafkaError, OSError, TimeoutError, ssl.SSLError),
    *(AssertionError, AttributeError, LookupError, RuntimeError, ValueError, asyncio.InvalidStateError),
)
_STUMBLES = (CorruptRecordException, RecordTooLargeError, ValueError)
_PATIENCE = 1.0  # seconds beyond its own timeout that getmany may take, which waits without bound for a group


class BrokerUnavailable(Exception):
    """Kafka cannot answer now; the consumer is to be made anew after a while."""


class OffsetLost(Exception):
    """The log no longer has the offset that was asked for."""


class Unreadable(Exception):
    """aiokafka stumbles over a record: bad checksum, a header name that is not UTF-8. It may have dropped others."""


class TooBig(Exception):
    """The topic does not take a record of this size."""


class Fetched(NamedTuple):
    """Records of one partition in order, and the offset after them (control records behind them skipped)."""

    records: Sequence[RawRecord]
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaOptions:
    """How Kafka is reached. Secrets are asked for at each connect, so that a changed file needs no restart."""

    bootstrap_servers: tuple[str, ...]
    topics: tuple[str, ...]
    group_id: str = "webhookd"
    client_id: str = "webhookd"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = ""
    sasl_username: str = ""
    sasl_password: Callable[[], str] = str
    sasl_token: Callable[[], str] = str
    ca_file: Path | None = None
    request_timeout: float = 15.0  # above the session timeout: a join may be held that long
    session_timeout: float = 10.0
    fetch_wait: float = 0.5


class Consumer:
    """One consumer from connecting to leaving the group. ``epoch`` grows with every change of the assignment.

    Newly assigned partitions are paused until ``seek`` and ``resume``: nothing is read from Kafka's own offsets.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options
        self._consumer: Any = None
        self._closed = False
        self._calls: set[asyncio.Timeout] = set()
        self.epoch = 0
        self.joined = False
        self.assigned: frozenset[Partition] = frozenset()

    async def open(self) -> None:
        """Connect and start to join; the assignment comes later. Raises BrokerUnavailable."""
        with translated():
            settings = await build_connection_settings(self._options)
            self._consumer = _build_consumer(self._options, settings)
            async with asyncio.timeout(2 * self._options.request_timeout):
                await self._consumer.start()
            self._consumer.subscribe(list(self._options.topics), listener=_build_listener(self))

    async def poll(self, wait: float, max_records: int, *only: Partition) -> dict[Partition, Fetched]:
        """Return what there is, at most so many records; nothing after ``wait`` seconds, or while the group rebalances.

        Raises:
            BrokerUnavailable, OffsetLost, Unreadable: none of them moves any partition's place in ``assigned`` for
            sure, so seek before reading on.
        """
        partitions = [TopicPartition(*partition) for partition in only]
        with translated():
            try:
                # A cancelled getmany loses nothing: it takes records out of its buffer only right before it returns.
                async with asyncio.timeout(wait + _PATIENCE):
                    batches = await self._consumer.getmany(
                        *partitions, timeout_ms=int(wait * 1000), max_records=max_records
                    )
            except TimeoutError:
                return {}
            except _STUMBLES as error:
                raise Unreadable(type(error).__name__) from error
            return {Partition(*tp): Fetched(records, await self._after(tp, records)) for tp, records in batches.items()}

    async def _after(self, tp: Any, records: Sequence[RawRecord]) -> int:
        try:
            position: int = await self._consumer.position(tp)  # at once: what was just read has a valid one
        except IllegalStateError:
            return records[-1].offset + 1
        return position

    def seek(self, partition: Partition, offset: int) -> None:
        """Read on from there."""
        with suppress(IllegalStateError):
            self._consumer.seek(TopicPartition(*partition), offset)

    def pause(self) -> None:
        """Hand out nothing until ``resume``; what was fetched is fetched again then."""
        self._consumer.pause(*self._consumer.assignment())

    def resume(self, partitions: Collection[Partition]) -> None:
        """Hand out records of these again, as far as they are still assigned."""
        self._consumer.resume(*self._consumer.assignment().intersection(TopicPartition(*p) for p in partitions))

    async def find_positions(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offset that is read next, control records skipped; only of partitions that are assigned."""
        found = {}
        for partition in partitions:
            with suppress(IllegalStateError, KafkaError):
                found[partition] = await self._consumer.position(TopicPartition(*partition))
        return found

    async def ping(self) -> None:
        """Return when the broker answers. Raises BrokerUnavailable."""
        async with self._call(self._options.request_timeout):
            await self._consumer.topics()

    async def find_ends(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Ask the broker where the logs end. Raises BrokerUnavailable."""
        async with self._call(self._options.request_timeout):
            ends = await self._consumer.end_offsets([TopicPartition(*partition) for partition in partitions])
        return {Partition(*tp): offset for tp, offset in ends.items()}

    async def find_bounds(self, partitions: Collection[Partition]) -> dict[Partition, LogBounds]:
        """Ask the broker what the logs hold. Raises BrokerUnavailable."""
        async with self._call(self._options.request_timeout):
            firsts = await self._consumer.beginning_offsets([TopicPartition(*p) for p in partitions])
        ends = await self.find_ends(partitions)
        return {Partition(*tp): LogBounds(first, ends[Partition(*tp)]) for tp, first in firsts.items()}

    async def commit(self, positions: Mapping[Partition, int], seconds: float) -> None:
        """Tell Kafka, for lag tools; of partitions that are assigned. Raises BrokerUnavailable."""
        offsets = {TopicPartition(*p): offset for p, offset in positions.items() if p in self.assigned}
        if not offsets:
            return
        async with self._call(seconds):  # aiokafka tries for ever
            await self._consumer.commit(offsets)

    @asynccontextmanager
    async def _call(self, seconds: float) -> AsyncIterator[None]:
        """A question beside the reading. It ends with ``close``: asked later, it would connect again and leak that."""
        with translated():
            async with asyncio.timeout(0 if self._closed else seconds) as call:
                self._calls.add(call)
                try:
                    yield
                finally:
                    self._calls.discard(call)

    async def close(self, seconds: float) -> None:
        """Leave the group if Kafka answers in time; in any case nothing is left running."""
        self._closed = True
        if self._consumer is None:
            return
        for call in self._calls:
            if not call.expired():
                call.reschedule(asyncio.get_running_loop().time())
        with suppress(KafkaError, OSError, TimeoutError, asyncio.CancelledError):
            async with asyncio.timeout(seconds):
                await self._consumer.stop()
        await _end_tasks(self._consumer)


@contextmanager
def translated() -> Iterator[None]:
    """Turn what aiokafka raises into this module's errors."""
    try:
        yield
    except OffsetOutOfRangeError as error:
        raise OffsetLost(str(error)) from error
    except MessageSizeTooLargeError as error:
        raise TooBig(str(error)) from error
    except _TROUBLE as error:
        raise BrokerUnavailable(type(error).__name__) from error


async def build_connection_settings(options: KafkaOptions) -> dict[str, Any]:
    """What aiokafka's clients have in common. Raises OSError for a CA file that cannot be read."""
    settings: dict[str, Any] = {
        "bootstrap_servers": list(options.bootstrap_servers),
        "client_id": options.client_id,
        "security_protocol": options.security_protocol,
        "request_timeout_ms": int(options.request_timeout * 1000),
        "metadata_max_age_ms": 30_000,
    }
    if options.security_protocol.endswith("SSL"):
        settings["ssl_context"] = await asyncio.to_thread(ssl.create_default_context, cafile=options.ca_file)
    if options.security_protocol.startswith("SASL"):
        settings |= _build_sasl_settings(options)
    return settings


def _build_sasl_settings(options: KafkaOptions) -> dict[str, Any]:
    if options.sasl_mechanism == "OAUTHBEARER":
        return {
            "sasl_mechanism": options.sasl_mechanism,
            "sasl_oauth_token_provider": _build_token_provider(options.sasl_token),
        }
    return {
        "sasl_mechanism": options.sasl_mechanism,
        "sasl_plain_username": options.sasl_username,
        "sasl_plain_password": options.sasl_password(),
    }


def _build_token_provider(token: Callable[[], str]) -> Any:
    async def provide(_: object) -> str:
        return token()

    return type("TokenProvider", (AbstractTokenProvider,), {"token": provide})()


def _build_consumer(options: KafkaOptions, settings: Mapping[str, Any]) -> Any:
    session = int(options.session_timeout * 1000)
    return AIOKafkaConsumer(
        group_id=options.group_id,
        enable_auto_commit=False,
        auto_offset_reset="none",  # out of range is told, not repaired in silence
        isolation_level="read_committed",
        session_timeout_ms=session,
        heartbeat_interval_ms=session // 4,
        rebalance_timeout_ms=session,
        fetch_max_wait_ms=int(options.fetch_wait * 1000),
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
        **settings,
    )


def _build_listener(consumer: Consumer) -> Any:
    """Neither callback waits for anything, so a rebalance never waits for us (F31).

    aiokafka swallows what a listener raises, and would read on from Kafka's own offset then.
    """

    def revoked(_: object, __: object) -> None:
        consumer.epoch += 1
        consumer.joined = False
        consumer.assigned = frozenset()

    def assigned(_: object, partitions: Collection[Any]) -> None:
        for tp in partitions:
            consumer._consumer.pause(tp)  # noqa: SLF001 - one class in two pieces
            consumer._consumer.seek(tp, 0)  # noqa: SLF001 - a valid position: Kafka's own is not asked for
        consumer.epoch += 1
        consumer.joined = True
        consumer.assigned = frozenset(Partition(*tp) for tp in partitions)

    methods = {"on_partitions_revoked": revoked, "on_partitions_assigned": assigned}
    return type("Listener", (ConsumerRebalanceListener,), methods)()


async def _end_tasks(consumer: Any) -> None:
    """Cancel what a ``stop`` that was cut off leaves behind: it has no other way to end."""
    coordinator, fetcher, client = consumer._coordinator, consumer._fetcher, consumer._client  # noqa: SLF001
    consumer._closed = True  # noqa: SLF001 - or it complains of not having been stopped
    found = [
        getattr(coordinator, "_coordination_task", None),
        getattr(coordinator, "_heartbeat_task", None),
        getattr(coordinator, "_commit_refresh_task", None),
        getattr(fetcher, "_fetch_task", None),
        *getattr(fetcher, "_pending_tasks", ()),
        getattr(client, "_sync_task", None),
    ]
    tasks = [task for task in found if task is not None and not task.done()]
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=1.0)
    for task in tasks:
        if task.done() and not task.cancelled():
            task.exception()  # seen
    for connection in list(client._conns.values()):  # noqa: SLF001
        connection.close()


class Producer:
    """Writes to one topic; every record is acknowledged by all replicas in sync before ``send`` returns."""

    def __init__(self, options: KafkaOptions, topic: str) -> None:
        self._options = options
        self._topic = topic
        self._producer: Any = None

    async def open(self) -> None:
        """Connect. Raises BrokerUnavailable."""
        with translated():
            settings = await build_connection_settings(self._options)
            self._producer = AIOKafkaProducer(acks="all", max_request_size=4 << 20, **settings)
            async with asyncio.timeout(2 * self._options.request_timeout):
                await self._producer.start()

    async def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None:
        """Write one record. Raises BrokerUnavailable, TooBig."""
        with translated():
            async with asyncio.timeout(2 * self._options.request_timeout):
                await self._producer.send_and_wait(self._topic, value, key=key, headers=list(headers))

    async def close(self, seconds: float) -> None:
        """Write what is under way if Kafka answers in time, and disconnect."""
        if self._producer is None:
            return
        with suppress(KafkaError, OSError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self._producer.stop()
