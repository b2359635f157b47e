"""Field cases of Kafka and of event bytes, against the embedded broker, a real database and the real transaction."""

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from service.ingest.broker import KafkaOptions, Producer, TooBig
from service.ingest.mirror import CUT, DeadLetterMirror
from service.ingest.worker import Limits
from service.lifecycle import Stop, SystemClock
from service.store.database import Database
from service.store.dead_letters import DeadLetters
from service.store.partitions import Partitions
from tests.support.api import URL_1, running_api
from tests.support.handing import KeepingEngine
from tests.support.ingest import (
    QUICK,
    Recorder,
    build_event,
    build_ingestor,
    eventually,
    finish,
    produce,
    query,
    running_worker,
)
from tests.support.postgres import empty


@pytest.fixture
def options(broker, topic):
    return KafkaOptions(bootstrap_servers=(broker,), topics=(topic,), group_id=topic)


class Real(Recorder):
    """The service's own ingestor, in the place of the one that only writes down."""

    async def ingest(self, poll):
        if not hasattr(self, "ingestor"):
            await Partitions(self.database).make_ahead()
            self.ingestor = build_ingestor(self.database)
        result = await self.ingestor.ingest(poll)
        self.polls.append(poll)
        return result


@asynccontextmanager
async def consuming(dsn, options, **more):
    async with running_worker(dsn, options, recorder=Real(None), **more) as running:
        yield running


async def list_jobs(dsn):
    return [row["job_id"] for row in await query(dsn, "SELECT job_id FROM jobs ORDER BY seen_seq")]


# F25


class Narrow:
    """A topic that takes records up to 1,000 bytes."""

    def __init__(self):
        self.sent = []

    async def open(self):
        pass

    async def send(self, key, value, headers):
        if len(value or b"") > 1000:
            raise TooBig
        self.sent.append((key, value, dict(headers)))

    async def close(self, seconds):
        pass


async def test_f25_a_dead_letter_too_big_for_its_topic_is_copied_without_its_bytes(database, broker, topic, options):
    await produce(broker, topic, b"x" * 2000, b"{", key=b"k")
    narrow = Narrow()
    async with Database(database) as store, consuming(database, options) as running:
        await eventually(lambda: running.counts.letters == 2)
        mirror = DeadLetterMirror(
            DeadLetters(store), lambda: narrow, running.worker.instance, lambda *_, **__: None, every=0.1
        )
        stop = Stop(SystemClock(), timedelta(seconds=5))
        async with asyncio.TaskGroup() as group:
            group.create_task(mirror.run(stop))
            await eventually(lambda: len(narrow.sent) == 2)
            stop.set()
    assert [(key, value) for key, value, _ in narrow.sent] == [(None, None), (b"k", b"{")]
    assert narrow.sent[0][2][CUT[0]] == CUT[1]
    assert narrow.sent[0][2]["webhookd-dead-letter-reason"] == b"invalid_json"


async def test_f25_a_real_broker_says_too_big(broker, topic, options):
    producer = Producer(options, topic)
    await producer.open()
    try:
        with pytest.raises(TooBig):
            await producer.send(None, b"x" * (5 << 20), ())
    finally:
        await producer.close(3)


# F26 to F32 with the embedded broker; tests/kafka has them with a real one


async def test_f26_slow_work_is_not_handled_again(database, broker, topic):
    options = KafkaOptions(bootstrap_servers=(broker,), topics=(topic,), group_id=topic, session_timeout=6.0)
    async with consuming(database, options) as running:
        real, polls = running.recorder.ingest, []

        async def slow(poll):
            polls.append(poll)
            await asyncio.wait([running.task], timeout=7.0)
            return await real(poll)

        running.recorder.ingest = slow
        await produce(broker, topic, finish("slow"))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        assert len(polls) == 1
        assert len(running.heard("partitions_assigned")) == 1


POISON = {
    "brace": b"{",
    "bad utf-8": b'{"event_id": "\xff"}',
    "bom": b"\xef\xbb\xbf" + build_event("bom"),
    "deep": b'{"a":' * 1100 + b"1" + b"}" * 1100,
    "surrogate": build_event("x").replace(b'"job_id": "', b'"job_id": "\\ud800'),
    "lone surrogate": b'"\\ud800"',
    "array": b"[" + build_event("x") + b"]",
    "nul": build_event("x", tenant_id="a\0b"),
    "nan": b'{"generation": NaN}',
    "number": b"7",
    "empty": b"",
    "huge number": build_event("x", generation=2**64),
    "zone": build_event("x", occurred_at="2026-11-30T09:00:00"),
    "avro": b"\0\0\0\0\x01\x02\xfe",
}


async def test_f28_poison_blocks_nothing(database, broker, topic, options):
    values = [finish("before"), *POISON.values(), finish("after")]
    await produce(broker, topic, *values)
    async with consuming(database, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 2)
        await eventually(lambda: running.counts.letters == len(POISON))
    assert set(await list_jobs(database)) >= {"before", "after"}
    rows = await query(database, "SELECT value, reason, kafka_offset FROM dead_letters ORDER BY kafka_offset")
    assert [(row["kafka_offset"], row["value"]) for row in rows] == list(enumerate(values))[1:-1]
    assert all(row["reason"] for row in rows)
    offsets = await query(database, "SELECT next_offset FROM kafka_offsets")
    assert offsets[0]["next_offset"] == len(values)


async def test_f29_records_that_were_read_and_not_stored_come_again(database, broker, topic, options):
    await produce(broker, topic, *(finish(f"j{number}") for number in range(100)))
    async with consuming(database, options) as running:
        read = asyncio.Event()

        async def hang(poll):
            read.set()
            await asyncio.Event().wait()

        running.recorder.ingest = hang
        await read.wait()
        await asyncio.wait([running.task], timeout=3 * QUICK.commit_every)  # an auto-commit would happen now
        await running.kill()
    async with consuming(database, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 100)
    assert len(await list_jobs(database)) == 100


async def test_f30_the_offset_never_passes_an_unfinished_record(database, broker, topic, options):
    await produce(broker, topic, *(finish(f"j{number}") for number in range(1, 8)))
    limits = Limits(max_records=1, poll_wait=0.1, shortest_pause=0.05)
    async with consuming(database, options, limits=limits) as running:
        real, reached = running.recorder.ingest, asyncio.Event()

        async def hang_at_four(poll):
            if poll.records[0].offset == 3:
                reached.set()
                await asyncio.Event().wait()
            return await real(poll)

        running.recorder.ingest = hang_at_four
        await reached.wait()
        await running.kill()
    assert (await query(database, "SELECT next_offset FROM kafka_offsets"))[0]["next_offset"] == 3
    async with consuming(database, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 4)
    assert await list_jobs(database) == [f"j{number}" for number in range(1, 8)]


async def test_f31_a_rebalance_in_a_busy_poll_is_over_in_seconds(database, broker, topic, options):
    async with consuming(database, options) as one:
        await eventually(lambda: one.heard("partitions_assigned"))
        real, release = one.recorder.ingest, asyncio.Event()

        async def busy(poll):
            await release.wait()
            return await real(poll)

        one.recorder.ingest = busy
        await produce(broker, topic, finish("j0"))
        async with consuming(database, options) as other:
            await eventually(lambda: other.worker._consumer is not None and other.worker._consumer.joined)
            release.set()
            await eventually(lambda: one.counts.outcomes["applied"] + other.counts.outcomes["applied"] >= 1)
    assert await list_jobs(database) == ["j0"]


async def test_f32_it_keeps_trying_and_recovers_unaided(database, broker, topic, options):
    """The broker's address refuses connections for a while, then does not."""
    async with relay(broker) as (address, open_up):
        away = KafkaOptions(bootstrap_servers=(address,), topics=(topic,), group_id=topic)
        await produce(broker, topic, finish("j0"))
        async with consuming(database, away) as running:
            await eventually(lambda: len(running.heard("kafka_unavailable")) > 8)
            assert not await running.worker.kafka_answers()
            assert not running.heartbeats.list_silent()
            open_up()
            await eventually(lambda: running.counts.outcomes["applied"] == 1)
            await eventually(running.worker.kafka_answers)


@asynccontextmanager
async def relay(target):
    """An address that drops every connection until `open_up` is called, then leads to `target`."""
    host, port = target.split(":")
    opened = False

    async def pump(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()

    async def serve(reader, writer):
        if not opened:
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection(host, int(port))
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(pump(reader, far_writer))
                group.create_task(pump(far_reader, writer))
        except* OSError:
            pass

    def open_up():
        nonlocal opened
        opened = True

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", open_up
    finally:
        server.close()


async def test_f53_records_that_are_read_again_make_the_same_ids(database, broker, topic, options):
    await produce(broker, topic, finish("j0", batch={"name": "b", "total": 1}), finish("j1"))
    made = []
    for _ in range(2):
        async with consuming(database, options) as running:
            await eventually(lambda: running.counts.outcomes["applied"] == 2)
        made.append({row["message_id"] for row in await query(database, "SELECT message_id FROM messages")})
        await empty(database)  # what a backup from before knows of it
    assert made[0] == made[1]
    assert len(made[0]) >= 2


# F33


async def test_f33_nothing_is_visible_before_the_commit(database, broker, topic, options):
    async with consuming(database, options) as running:
        await eventually(lambda: running.heard("partitions_assigned"))
        real, release, arrived = running.recorder.database.transaction, asyncio.Event(), asyncio.Event()

        @asynccontextmanager
        async def delayed():
            async with real() as session:
                yield session
                arrived.set()
                await release.wait()

        running.recorder.database.transaction = delayed
        await produce(broker, topic, finish("j0"))
        await arrived.wait()
        assert await query(database, "SELECT FROM deliveries") == []
        assert await query(database, "SELECT FROM messages") == []
        release.set()
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
    assert len(await query(database, "SELECT FROM deliveries")) == 1


AT_THE_COMMIT = """
CREATE FUNCTION at_the_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN {does}; RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER at_the_commit AFTER INSERT ON deliveries
    DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION at_the_commit();
"""


@asynccontextmanager
async def handing_over(dsn, does):
    """The API over an engine that has room for everything, on a database whose commits of deliveries do something first."""
    engine = KeepingEngine()
    async with running_api(dsn, handoff=engine) as api:
        await api.post("/v1/webhooks", {"url": URL_1, "event_types": ["*"]})
        await api.connection.execute(AT_THE_COMMIT.format(does=does))
        yield api, engine


async def test_f33_nothing_is_handed_to_the_sender_before_the_commit(new_database):
    async with handing_over(await new_database(), "PERFORM pg_advisory_xact_lock(33)") as (api, engine):
        await api.connection.execute("SELECT pg_advisory_lock(33)")
        sending = asyncio.create_task(api.send(api.event("job.completed", "j0", status="succeeded")))
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 33 AND NOT granted"
        await eventually(lambda: api.value(waits))
        assert engine.handed == []
        await api.connection.execute("SELECT pg_advisory_unlock(33)")
        await sending
        assert len(engine.handed) == 1


async def test_f33_what_was_not_committed_is_given_up(new_database):
    does = "RAISE EXCEPTION 'somebody else was first' USING ERRCODE = 'serialization_failure'"
    async with handing_over(await new_database(), does) as (api, engine):
        reply = await api.post("/v1/events", [api.event("job.completed", "j0", status="succeeded")])
        assert (reply.status, engine.handed) == (503, [])
        assert engine.canceled
        await api.connection.execute("DROP TRIGGER at_the_commit ON deliveries")
        await api.send(api.event("job.completed", "j0", status="succeeded"))
        assert len(engine.handed) == 1


# F42 and F45

METADATA = [
    '{"b":1,"a":2}',
    '{"a":1,"a":2}',
    '{"price": 1.10, "big": 1E2 ,\n\t"é": "\\u00e9\u2028"}',
    '{"n":[9007199254740993,9223372036854775808,18446744073709551616,1e400,-0.0,1.0]}',
]


@pytest.mark.parametrize("metadata", METADATA)
async def test_f42_f45_metadata_comes_out_as_the_bytes_it_came_in(database, broker, topic, options, metadata):
    value = finish("j0")[:-1] + b', "metadata": ' + metadata.encode() + b" }\n"
    await produce(broker, topic, value)
    async with consuming(database, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
    (row,) = await query(database, "SELECT body FROM message_bodies")
    assert metadata.encode() in row["body"]
    json.loads(row["body"])


async def test_f45_a_number_that_is_out_of_range_is_refused(database, broker, topic, options):
    bad = [finish("x", generation=2**31), finish("x")[:-1] + b', "generation": 1e400}', finish("x", attempts=1.5)]
    await produce(broker, topic, *bad, finish("good", generation=2**31 - 1))
    async with consuming(database, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        await eventually(lambda: running.counts.letters == 3)
    assert await list_jobs(database) == ["good"]
