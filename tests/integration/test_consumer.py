"""The Kafka worker against the embedded broker and a real database."""

import asyncio
import hashlib
import socket
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

import pytest

from service.ingest.broker import BrokerUnavailable, Consumer, KafkaOptions, Producer, Unreadable
from service.ingest.mirror import DeadLetterMirror
from service.ingest.poll import Partition
from service.ingest.worker import Limits
from service.lifecycle import Stop, SystemClock
from service.store.database import Database
from service.store.dead_letters import DeadLetters
from tests.support.ingest import (
    QUICK,
    build_event,
    build_events,
    count_seen,
    eventually,
    list_seen,
    prepare_schema,
    produce,
    query,
    running_worker,
)


@pytest.fixture
async def dsn(new_database):
    return await prepare_schema(await new_database(migrated=False))


@pytest.fixture
def options(broker, topic):
    return KafkaOptions(bootstrap_servers=(broker,), topics=(topic,), group_id=topic)


async def find_offset(dsn):
    rows = await query(dsn, "SELECT next_offset, catch_up_until, owner FROM kafka_offsets")
    return rows[0] if rows else None


async def test_a_close_at_the_moment_when_a_question_runs_out(options):
    consumer = Consumer(options)
    await consumer.open()

    async def ask():
        async with consumer._call(0.01):
            try:
                await asyncio.Event().wait()
            finally:
                await consumer.close(5.0)

    with pytest.raises(BrokerUnavailable):
        await ask()


async def test_records_are_stored_with_their_offsets(dsn, broker, topic, options):
    await produce(broker, topic, *build_events(0, 1, 2))
    async with running_worker(dsn, options) as running:
        await eventually(lambda: count_seen(dsn), 30)
        await produce(broker, topic, *build_events(3, 4))
        await eventually(lambda: running.counts.outcomes["applied"] == 5)
        await eventually(lambda: running.counts.behind == {Partition(topic, 0): 0})
        await eventually(running.worker.kafka_answers)
    assert await list_seen(dsn) == ["j0", "j1", "j2", "j3", "j4"]
    row = await find_offset(dsn)
    assert (row["next_offset"], row["catch_up_until"]) == (5, 3)
    assert running.counts.outcomes == {"applied": 5}


async def test_kafkas_own_offset_follows(dsn, broker, topic, options):
    await produce(broker, topic, *build_events(0, 1, 2))
    async with running_worker(dsn, options):
        await eventually(lambda: len_is(dsn, 3))
    consumer = Consumer(options)
    await consumer.open()
    try:
        await eventually(lambda: joined(consumer))
        assert await consumer._consumer.committed(next(iter(consumer._consumer.assignment()))) == 3
    finally:
        await consumer.close(3)


async def joined(consumer):
    await consumer.poll(0.1, 1)
    return consumer.joined


async def test_a_restart_goes_on_where_the_database_says(dsn, broker, topic, options):
    await produce(broker, topic, *build_events(0, 1, 2))
    async with running_worker(dsn, options):
        await eventually(lambda: len_is(dsn, 3))
    await query(dsn, "UPDATE kafka_offsets SET next_offset = 1")  # a restored backup, say
    await produce(broker, topic, *build_events(3))
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 3)
    assert await list_seen(dsn) == ["j0", "j1", "j2", "j1", "j2", "j3"]


async def test_poison_becomes_dead_letters_and_blocks_nothing(dsn, broker, topic, options):
    big = b"[" + b" " * (1 << 20) + b"]"
    bad = [
        b"{",
        b"\xff\xfe",
        b"[]",
        build_event("x", event_type="job.exploded"),
        build_event("x", source="nobody"),
        big,
    ]
    await produce(broker, topic, *build_events(0), *bad[:3], None, *bad[3:], key=b"k\0", headers=[("h", b"\xff")])
    await produce(broker, topic, *build_events(1))
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 2)
        await eventually(lambda: running.counts.letters == 6)
    assert await list_seen(dsn) == ["j0", "j1"]
    assert running.counts.outcomes == {"applied": 2, "dead_letter": 6, "tombstone": 1}
    rows = await query(dsn, "SELECT * FROM dead_letters ORDER BY kafka_offset")
    reasons = ["invalid_json", "invalid_utf8", "schema", "unknown_type", "unknown_source", "oversize"]
    assert [row["reason"] for row in rows] == reasons
    assert [row["kafka_offset"] for row in rows] == [1, 2, 3, 5, 6, 7]
    for row, value in zip(rows, bad, strict=True):
        assert (row["value"], row["size"], row["key"]) == (value[: 1 << 20], len(value), b"k\0")
        assert row["sha256"] == hashlib.sha256(value).digest()
    async with Database(dsn) as database:
        letter = await DeadLetters(database).find(rows[0]["dead_letter_id"])
    assert letter.headers == (("h", b"\xff"),)


async def test_only_the_culprit_of_a_bug_is_put_aside(dsn, broker, topic, options):
    def refuse(record):
        if getattr(record.content, "job_id", "") in {"j7", "j19"}:
            raise ZeroDivisionError("bug")

    async with running_worker(dsn, options) as running:
        running.recorder.refuse = refuse
        await produce(broker, topic, *build_events(*range(40)))
        await eventually(lambda: running.counts.outcomes["applied"] == 38)
    assert await list_seen(dsn) == [f"j{n}" for n in range(40) if n not in {7, 19}]
    rows = await query(dsn, "SELECT reason, detail, kafka_offset, value FROM dead_letters ORDER BY kafka_offset")
    assert [(row["reason"], row["detail"], row["kafka_offset"]) for row in rows] == [
        ("internal_error", "ZeroDivisionError", 7),
        ("internal_error", "ZeroDivisionError", 19),
    ]
    assert [fields["offset"] for fields in running.heard("record_failed")] == [7, 19]
    assert (await find_offset(dsn))["next_offset"] == 40


async def test_a_bug_that_no_record_causes_ends_the_worker(dsn, broker, topic, options):
    def refuse(record):
        raise ZeroDivisionError("bug")

    with pytest.raises(ExceptionGroup):  # noqa: PT012 - the worker runs inside
        async with running_worker(dsn, options) as running:
            running.recorder.refuse = refuse
            await produce(broker, topic, *build_events(0))
            await asyncio.wait([running.task], timeout=60)
    assert await count_seen(dsn) == 0
    assert (await find_offset(dsn))["next_offset"] == 0


async def test_a_database_outage_pauses_and_nothing_is_put_aside(dsn, broker, topic, options):
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.heard("partitions_assigned"))
        running.recorder.away = True
        await produce(broker, topic, *build_events(*range(5)))
        await eventually(lambda: running.heard("database_unavailable"))
        await produce(broker, topic, *build_events(*range(5, 10)))
        for _ in range(10):
            await running.worker._watchdog.look()
        assert running.worker._watchdog.stuck_for < QUICK.renew_after
        assert not running.heartbeats.list_silent()
        running.recorder.away = False
        await eventually(lambda: running.counts.outcomes["applied"] == 10)
        assert len(running.heard("partitions_assigned")) == 1  # membership was kept
    assert await list_seen(dsn) == [f"j{n}" for n in range(10)]
    assert await query(dsn, "SELECT FROM dead_letters") == []
    assert running.heard("database_back")


async def test_a_real_outage_recovers_unaided(dsn, broker, topic, options, postgres):
    name = urlsplit(dsn).path[1:]
    async with running_worker(dsn, options) as running:
        await produce(broker, topic, *build_events(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        await rename_database(postgres, name, f"{name}_away")
        await produce(broker, topic, *build_events(1, 2, 3))
        await eventually(lambda: running.heard("database_unavailable"))
        await rename_database(postgres, f"{name}_away", name)
        await eventually(lambda: running.counts.outcomes["applied"] == 4)
    assert await list_seen(dsn) == ["j0", "j1", "j2", "j3"]
    assert running.counts.letters == 0


async def rename_database(server, old, new):
    async def rename():
        await query(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", old)
        try:
            await query(server, f'ALTER DATABASE "{old}" RENAME TO "{new}"')
        except Exception:  # noqa: BLE001 - somebody connected in between
            return False
        return True

    await eventually(rename)


async def test_an_outage_at_the_start(dsn, broker, topic, options, postgres):
    name = urlsplit(dsn).path[1:]
    await produce(broker, topic, *build_events(0, 1))
    await rename_database(postgres, name, f"{name}_away")
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.heard("database_unavailable"))
        await eventually(running.worker.kafka_answers)
        await rename_database(postgres, f"{name}_away", name)
        await eventually(lambda: running.counts.outcomes["applied"] == 2)


@pytest.mark.parametrize("stored", [100, 4])
async def test_an_offset_that_the_log_does_not_have(dsn, broker, topic, options, stored):
    await produce(broker, topic, *build_events(0, 1, 2))
    sql = "INSERT INTO kafka_offsets (topic, partition, next_offset, catch_up_until, owner) VALUES ($1, 0, $2, 50, 'x')"
    await query(dsn, sql, topic, stored)
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 3)
    assert running.counts.anomalies == {"missed_records": 1}
    told = running.heard("missed_records")
    assert [(fields["stored_offset"], fields["first_offset"], fields["missed"]) for fields in told] == [
        (stored, 0, None)
    ]
    assert (await find_offset(dsn))["catch_up_until"] == 0


async def test_an_end_offset_is_in_the_log(dsn, broker, topic, options):
    await produce(broker, topic, *build_events(0, 1, 2))
    sql = "INSERT INTO kafka_offsets (topic, partition, next_offset, owner) VALUES ($1, 0, 3, 'x')"
    await query(dsn, sql, topic)
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.heard("partitions_assigned"))
        await produce(broker, topic, *build_events(3))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
    assert running.counts.anomalies == {}
    assert await list_seen(dsn) == ["j3"]


async def test_an_offset_that_the_log_loses_while_reading(dsn, broker, topic, options):
    async with running_worker(dsn, options) as running:
        await produce(broker, topic, *build_events(0, 1))
        await eventually(lambda: running.counts.outcomes["applied"] == 2)
        await query(dsn, "UPDATE kafka_offsets SET next_offset = 90")
        running.worker._consumer.seek(Partition(topic, 0), 90)
        await eventually(lambda: running.heard("missed_records"))
        await eventually(lambda: running.counts.outcomes["applied"] == 4)


async def test_a_first_start_is_silent_about_the_past(dsn, broker, topic, options):
    now = datetime.now(UTC)
    old, older, ancient = now - timedelta(hours=23), now - timedelta(hours=25), now - timedelta(days=401)
    past = [build_event(f"j{n}", occurred_at=time.isoformat()) for n, time in enumerate((now, old, older, ancient))]
    await produce(broker, topic, *past)
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 3)
        late = [build_event(f"l{n}", occurred_at=time.isoformat()) for n, time in enumerate((older, ancient))]
        await produce(broker, topic, *late)
        await eventually(lambda: running.counts.outcomes["applied"] == 4)
        await eventually(lambda: running.counts.outcomes["expired"] == 2)
    rows = await query(dsn, "SELECT job_id, silent FROM seen ORDER BY nr")
    assert [tuple(row) for row in rows] == [("j0", False), ("j1", False), ("j2", True), ("l0", False)]
    assert (await find_offset(dsn))["next_offset"] == 6


async def test_the_past_is_remembered_over_a_crash_at_the_first_start(dsn, broker, topic, options):
    await produce(broker, topic, *build_events(0, 1))
    async with running_worker(dsn, options) as running:
        running.recorder.away = True
        await eventually(lambda: running.heard("database_unavailable"))
    await produce(broker, topic, *build_events(2, 3))
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 4)
    assert (await find_offset(dsn))["catch_up_until"] == 2


async def test_a_lost_fence_writes_nothing(dsn, broker, topic, options):
    async with running_worker(dsn, options) as running:
        await produce(broker, topic, *build_events(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        await query(dsn, "UPDATE kafka_offsets SET owner = 'another'")
        await produce(broker, topic, *build_events(1))
        await eventually(lambda: [f for f in running.heard("kafka_unavailable") if "another owner" in f["reason"]])
        await eventually(lambda: running.counts.outcomes["applied"] == 2)  # it joined again and wrote its fence
    assert await list_seen(dsn) == ["j0", "j1"]


class Stumbling(Consumer):
    """Raises at one offset, as aiokafka does for a header name that is not UTF-8, and drops what came before it."""

    def __init__(self, options, at):
        super().__init__(options)
        self.at = at

    async def poll(self, wait, max_records, *only):
        fetched = await super().poll(wait, max_records, *only)
        if any(record.offset == self.at for batch in fetched.values() for record in batch.records):
            raise Unreadable("UnicodeDecodeError")
        return fetched


async def test_a_record_that_cannot_be_read_blocks_nothing(dsn, broker, topic, options):
    await produce(broker, topic, *build_events(*range(6)))
    async with running_worker(dsn, options, connect=lambda: Stumbling(options, 3)) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 5)
    assert await list_seen(dsn) == ["j0", "j1", "j2", "j4", "j5"]
    rows = await query(dsn, "SELECT kafka_offset, reason, detail, value, size FROM dead_letters")
    assert [tuple(row) for row in rows] == [(3, "schema", "could not be read: UnicodeDecodeError", None, 0)]


async def test_a_stop_is_clean_and_loses_nothing(dsn, broker, topic, options):
    release = asyncio.Event()
    async with running_worker(dsn, options) as running:
        running.recorder.before_commit = lambda poll: release.wait()
        await produce(broker, topic, *build_events(0, 1))
        await eventually(lambda: running.counts is not None and running.heard("partitions_assigned"))
        running.stop.set()
        release.set()
        await running.end()
    async with running_worker(dsn, options) as running:
        await eventually(lambda: count_seen(dsn))
        await eventually(lambda: len_is(dsn, 2))
    assert await list_seen(dsn) == ["j0", "j1"]


async def len_is(dsn, number):
    return await count_seen(dsn) == number


async def test_a_transaction_that_hangs_is_cut_off_at_the_stop(dsn, broker, topic, options):
    async with running_worker(dsn, options, drain=7.0) as running:
        running.recorder.before_commit = lambda poll: asyncio.Event().wait()
        await produce(broker, topic, *build_events(0))
        await eventually(lambda: running.heard("partitions_assigned"))
        assert await running.end() < 7.0
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 1)


def closed_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def test_without_a_broker_it_waits_and_stops_at_once(dsn, topic):
    options = KafkaOptions(bootstrap_servers=(f"127.0.0.1:{closed_port()}",), topics=(topic,))
    async with running_worker(dsn, options, drain=60.0) as running:
        await eventually(lambda: len(running.heard("kafka_unavailable")) > 3)
        assert not await running.worker.kafka_answers()
        assert not running.heartbeats.list_silent()
        assert await running.end() < 30  # half its budget


async def test_with_a_silent_broker_it_stops_at_once(dsn, topic):
    with socket.create_server(("127.0.0.1", 0)) as server:
        options = KafkaOptions(bootstrap_servers=(f"127.0.0.1:{server.getsockname()[1]}",), topics=(topic,))
        async with running_worker(dsn, options, drain=60.0) as running:
            await eventually(lambda: running.worker._opening)
            assert await running.end() < 30  # half its budget


class Deaf(Consumer):
    """Reads nothing, as if its fetcher had died without a word (F27)."""

    deaf = True

    async def poll(self, wait, max_records, *only):
        if self.deaf and self.joined:
            await asyncio.sleep(wait)
            return {}
        return await super().poll(wait, max_records, *only)


async def test_a_consumer_that_fell_silent_is_made_anew(dsn, broker, topic, options):
    made = []

    def connect():
        made.append(Deaf(options))
        made[-1].deaf = len(made) < 2
        return made[-1]

    limits = Limits(poll_wait=0.1, shortest_pause=0.05, look_every=0.1, renew_after=1.0)
    await produce(broker, topic, *build_events(0))
    async with running_worker(dsn, options, connect=connect, limits=limits) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
    assert {fields["reason"] for fields in running.heard("kafka_unavailable")} == {"no progress"}
    assert made[0].deaf


async def test_liveness_fails_when_nothing_helps(dsn, broker, topic, options):
    limits = Limits(
        poll_wait=0.1,
        shortest_pause=0.05,
        look_every=0.1,
        renew_after=60,
        stuck_after=5.0,
        heartbeat=timedelta(seconds=5),
    )
    async with running_worker(dsn, options, connect=lambda: Deaf(options), limits=limits) as running:
        await eventually(lambda: running.heard("partitions_assigned"))
        for _ in range(15):
            await running.worker._watchdog.look()
        assert not running.heartbeats.list_silent()  # idle is not stuck
        await produce(broker, topic, *build_events(0))
        await eventually(lambda: running.heartbeats.list_silent() and running.counts.behind == {Partition(topic, 0): 1})


async def test_dead_letters_are_mirrored(dsn, broker, topic, options):
    await produce(broker, topic, b"{", b"[", key=b"k", headers=[("h", b"1")])
    async with Database(dsn) as database, running_worker(dsn, options) as running:
        letters = DeadLetters(database)
        told = []
        mirror = DeadLetterMirror(
            letters,
            lambda: Producer(options, f"{topic}-dlq"),
            running.worker.instance,
            lambda *a, **k: told.append(a),
            1.0,
        )
        stop = Stop(SystemClock(), timedelta(seconds=5))
        async with asyncio.TaskGroup() as group:
            group.create_task(mirror.run(stop))
            await eventually(lambda: running.counts.letters == 2)
            mirror.wake()
            await eventually(lambda: all_mirrored(dsn))
            stop.set()
        assert await letters.list_unmirrored(running.worker.instance, 10) == []
    copies = await read_all(options, f"{topic}-dlq", 2)
    assert [(record.key, record.value) for record in copies] == [(b"k", b"{"), (b"k", b"[")]
    headers = dict(copies[0].headers)
    assert (headers["h"], headers["webhookd-dead-letter-reason"]) == (b"1", b"invalid_json")
    assert headers["webhookd-dead-letter-topic"] == topic.encode()


async def all_mirrored(dsn):
    rows = await query(dsn, "SELECT count(*) AS n FROM dead_letters WHERE mirrored_at IS NOT NULL")
    return rows[0]["n"] == 2


async def read_all(options, topic, number):
    consumer = Consumer(KafkaOptions(bootstrap_servers=options.bootstrap_servers, topics=(topic,), group_id=topic))
    await consumer.open()
    try:
        await eventually(lambda: joined(consumer))
        for partition in consumer.assigned:
            consumer.seek(partition, 0)
        consumer.resume(consumer.assigned)
        records = []
        while len(records) < number:
            for batch in (await consumer.poll(1.0, 10)).values():
                records += batch.records
        return records
    finally:
        await consumer.close(3)


def test_quick_limits_are_limits():
    assert QUICK.max_records == Limits().max_records
