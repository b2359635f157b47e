"""A Kafka worker as the service runs it, over a real database, with an ingestor that only writes down what it is given."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import asyncpg
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from service.delivery.arrivals import NoEngine
from service.domain.batches import Settling
from service.domain.egress import parse_policy
from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome as Outcome
from service.ingest.announcing import Announcer
from service.ingest.applying import Ingestor
from service.ingest.broker import Consumer, KafkaOptions
from service.ingest.parsing import Parser
from service.ingest.poison import DeadLetter
from service.ingest.poll import Partition, Poll, PollResult
from service.ingest.reading import Reader
from service.ingest.worker import KafkaIngest, Limits
from service.lifecycle import Heartbeats, Stop, SystemClock, SystemRng
from service.ports import StoreUnavailable
from service.profiles import load_profiles
from service.sealing import Sealer
from service.sender.names import ascii_host
from service.store.database import Database
from service.store.dead_letters import insert_dead_letters
from service.store.ingesting import PostgresIngestStore
from service.store.offsets import OffsetStore
from service.store.opening import open_ingest
from service.store.routing import OneShots, RoutingCopy
from service.telemetry import Telemetry

MIGRATIONS = Path(__file__).parents[2] / "service" / "store" / "migrations"
SEEN = "CREATE TABLE seen (nr bigserial, topic text, partition int, kafka_offset bigint, job_id text, silent boolean)"
QUICK = Limits(poll_wait=0.1, shortest_pause=0.05, longest_pause=0.3, commit_every=0.2, look_every=0.1)


async def prepare_schema(dsn: str) -> str:
    connection = await asyncpg.connect(dsn)
    for script in sorted(MIGRATIONS.glob("*.sql")):
        await connection.execute(script.read_text())
    await connection.execute(SEEN)
    await connection.close()
    return dsn


async def eventually(check: Callable, seconds: float = 60.0):
    """Wait until `check()`, awaited if need be, is true; return what it gave."""
    async with asyncio.timeout(seconds):
        while True:
            found = check()
            if asyncio.iscoroutine(found):
                found = await found
            if found:
                return found
            await asyncio.sleep(0.02)


def build_event(job_id: str, **changes) -> bytes:
    event = {
        "event_id": f"evt-{job_id}",
        "event_type": "job.queued",
        "occurred_at": datetime.now(UTC).isoformat(),
        "tenant_id": "t",
        "job_id": job_id,
    }
    return json.dumps(event | changes).encode()


def build_events(*numbers: int) -> list[bytes]:
    """Events of jobs `j0`, `j1`, …"""
    return [build_event(f"j{number}") for number in numbers]


async def create_topic(bootstrap_servers: str, topic: str, partitions: int = 1) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


def finish(job_id, **changes):
    return build_event(
        job_id, event_type="job.completed", status="succeeded", webhook_url="https://example.com/hook", **changes
    )


async def produce(bootstrap_servers: str, topic: str, *values: bytes | None, **options) -> None:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, max_request_size=8 << 20, compression_type="gzip")
    await producer.start()
    try:
        for value in values:
            await producer.send(topic, value, **options)
        await producer.flush()
    finally:
        await producer.stop()


class Recorder:
    """Writes events into `seen`, in the transaction that stores the offsets. `refuse` may raise for a record."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.away = False
        self.refuse: Callable = lambda record: None
        self.before_commit: Callable = lambda poll: None
        self.polls: list[Poll] = []

    async def ingest(self, poll: Poll) -> PollResult:
        if self.away:
            raise StoreUnavailable("away")
        async with self.database.transaction() as session:
            owned = (await open_ingest(session, poll.owner, poll.positions)).owned
            kept = [record for record in poll.records if record.partition in owned]
            for record in kept:
                self.refuse(record)
            await insert_dead_letters(session, kept)
            rows = [
                (*r.partition, r.offset, r.content.job_id, r.content.silent)
                for r in kept
                if isinstance(r.content, JobEvent)
            ]
            await session.connection.executemany(
                "INSERT INTO seen (topic, partition, kafka_offset, job_id, silent) VALUES ($1, $2, $3, $4, $5)", rows
            )
            waiting = self.before_commit(poll)
            if waiting is not None:
                await waiting
        self.polls.append(poll)
        outcomes = tuple(self.judge(record) if record.partition in owned else None for record in poll.records)
        return PollResult(outcomes, frozenset(poll.positions.keys() - owned))

    def judge(self, record):
        if isinstance(record.content, JobEvent):
            return Outcome.APPLIED
        return Outcome.DEAD_LETTER if isinstance(record.content, DeadLetter) else Outcome(record.content.outcome.value)


class Counts:
    """What was counted and gauged."""

    def __init__(self) -> None:
        self.outcomes: Counter[str] = Counter()
        self.anomalies: Counter[str] = Counter()
        self.letters = 0
        self.behind: dict[Partition, int] = {}

    def job_events(self, outcome: str, count: int = 1) -> None:
        self.outcomes[str(outcome)] += count

    def event_anomalies(self, kind: str, count: int = 1) -> None:
        self.anomalies[kind] += count

    def dead_letters(self, count: int) -> None:
        self.letters += count

    def records_behind(self, topic: str, partition: int, count: int) -> None:
        self.behind[Partition(topic, partition)] = count

    def partition_lost(self, topic: str, partition: int) -> None:
        self.behind.pop(Partition(topic, partition), None)


@dataclass
class Running:
    """A worker under way."""

    worker: KafkaIngest
    recorder: Recorder
    counts: Counts
    heartbeats: Heartbeats
    stop: Stop
    told: list[tuple[str, dict]] = field(default_factory=list)
    task: asyncio.Task | None = None

    def heard(self, event: str) -> list[dict]:
        return [fields for name, fields in self.told if name == event]

    async def end(self, seconds: float = 60.0) -> float:
        """Ask it to stop; how long that took."""
        began = asyncio.get_running_loop().time()
        self.stop.set()
        await asyncio.wait_for(self.task, seconds)
        return asyncio.get_running_loop().time() - began

    async def kill(self) -> None:
        """As kill -9 would leave the database and Kafka: no commit, no leaving, nothing flushed."""
        self.task.cancel()
        await asyncio.wait([self.task], timeout=20)


@asynccontextmanager
async def running_worker(
    dsn: str, options: KafkaOptions, *, limits: Limits = QUICK, drain: float = 15.0, recorder: Recorder | None = None,
    connect: Callable | None = None, clock=None, notify_max_age: timedelta = timedelta(hours=24), **more,
) -> AsyncIterator[Running]:  # fmt: skip
    """Run one; it has ended when this ends."""
    clock = clock or SystemClock()
    counts, told, heartbeats = Counts(), [], Heartbeats(clock)
    stop = Stop(clock, timedelta(seconds=drain))
    async with Database(dsn, size=4, command_timeout=10) as database:
        recorder = recorder or Recorder(database)
        recorder.database = database
        reader = Reader(
            Parser(load_profiles()), clock, notify_max_age=notify_max_age, retention_state=timedelta(days=400)
        )
        worker = KafkaIngest(
            connect or (lambda: Consumer(options)), reader, recorder, OffsetStore(database), counts,
            clock=clock, rng=SystemRng(), heartbeats=heartbeats,
            tell=lambda event, **fields: told.append((event, fields)), limits=limits, **more,
        )  # fmt: skip
        running = Running(worker, recorder, counts, heartbeats, stop, told)
        async with asyncio.TaskGroup() as group:
            running.task = group.create_task(worker.run(stop))
            try:
                yield running
            finally:
                stop.set()
                await asyncio.wait([running.task], timeout=30)
                running.task.cancel()


async def list_seen(dsn: str) -> list[str]:
    return [row["job_id"] for row in await query(dsn, "SELECT job_id FROM seen ORDER BY nr")]


async def count_seen(dsn: str) -> int:
    return (await query(dsn, "SELECT count(*) AS n FROM seen"))[0]["n"]


async def query(dsn: str, sql: str, *args) -> list:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetch(sql, *args)
    finally:
        await connection.close()


def build_ingestor(database):
    profiles = load_profiles()
    policy = parse_policy(to_ascii=ascii_host)
    numbers = iter(range(10_000))
    return Ingestor(
        PostgresIngestStore(
            database, RoutingCopy(), OneShots(Sealer([("k", b"k" * 32)]), policy, lambda: f"whk_{next(numbers)}")
        ),
        profiles,
        Announcer(profiles, 256_000, NoEngine(lambda: None)),
        Settling(timedelta(seconds=2), timedelta(seconds=5)),
        Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=[timedelta(seconds=5)]),
    )
