"""The Kafka worker against a real Apache Kafka that is rebalanced, frozen and restarted under it."""

import asyncio
import contextlib
from dataclasses import replace

import pytest
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.structs import TopicPartition

from service.ingest.broker import KafkaOptions
from service.ingest.worker import Limits
from tests.support.ingest import (
    QUICK,
    build_event,
    create_topic,
    eventually,
    list_seen,
    prepare_schema,
    produce,
    query,
    running_worker,
)

pytestmark = pytest.mark.timeout(400)


@pytest.fixture
async def dsn(new_database):
    return await prepare_schema(await new_database(migrated=False))


@pytest.fixture
def options(kafka, topic):
    return KafkaOptions(
        bootstrap_servers=(kafka.bootstrap_servers,),
        topics=(topic,),
        group_id=topic,
        session_timeout=8.0,
        request_timeout=5.0,
    )


def names(*numbers):
    return [f"j{number}" for number in numbers]


def jobs(*numbers):
    return [build_event(name) for name in names(*numbers)]


async def seen_all(dsn, expected):
    return set(await list_seen(dsn)) >= set(expected)


async def spread(kafka, topic, *numbers):
    """Produce to all partitions in turn."""
    for number in numbers:
        await produce(kafka.bootstrap_servers, topic, build_event(f"j{number}"), partition=number % 4)


async def test_a_foreign_client_in_every_form(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic)
    plain = build_event("plain").decode()
    data = '{"tenant_id": "t", "job_id": "binary"}'
    headers = (
        "ce_specversion:1.0,ce_id:e1,ce_type:job.queued,ce_source:native,ce_time:2026-11-30T09%3A00%3A00Z".replace(
            "%3A", "-"
        )
    )
    envelope = '{"specversion": "1.0", "id": "e2", "type": "job.queued", "source": "native", "time": "%s", "data": %s}'
    time = "2026-11-30T09:00:00Z"
    lines = f"x:1\tk\t{plain}\n" + "content-type:application/cloudevents+json; charset=UTF-8\tk\t"
    lines += envelope % (time, '{"tenant_id": "t", "job_id": "structured"}') + "\n"
    lines += f"{headers}\tk\t{data}\n" + "x:1\tk\tNULL\n" + "x:1\tk\t{\n"
    properties = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    await kafka.produce(topic, lines, *(part for text in properties for part in ("--property", text)))
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["tombstone"] and running.counts.letters >= 1)
        await eventually(lambda: seen_all(dsn, ["plain", "structured"]))
    reasons = [row["reason"] for row in await query(dsn, "SELECT reason FROM dead_letters ORDER BY kafka_offset")]
    assert reasons == ["schema", "invalid_json"]  # the console producer cannot write a colon into a header's value


async def test_two_workers_share_and_take_over(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic, 4)
    async with running_worker(dsn, options) as one:
        await spread(kafka, topic, *range(8))
        await eventually(lambda: seen_all(dsn, names(*range(8))))
        async with running_worker(dsn, options) as other:
            await eventually(lambda: other.worker._consumer and len(other.worker._consumer.assigned) == 2)
            await eventually(lambda: one.worker._consumer and len(one.worker._consumer.assigned) == 2)
            await spread(kafka, topic, *range(8, 16))
            await eventually(lambda: seen_all(dsn, names(*range(16))))
            assert other.counts.outcomes["applied"] > 0
        await eventually(lambda: one.worker._consumer and len(one.worker._consumer.assigned) == 4)
        await spread(kafka, topic, *range(16, 24))
        await eventually(lambda: seen_all(dsn, names(*range(24))))
    assert sorted(await list_seen(dsn)) == sorted(names(*range(24)))  # each once


async def test_a_killed_worker_loses_nothing_and_repeats_nothing(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic, 4)
    await spread(kafka, topic, *range(12))
    async with running_worker(dsn, options) as one:
        await eventually(lambda: one.counts.outcomes["applied"])
        await one.kill()
    async with running_worker(dsn, options) as other:
        await spread(kafka, topic, *range(12, 16))
        await eventually(lambda: seen_all(dsn, names(*range(16))), 90)
        assert other.counts.letters == 0
    assert sorted(await list_seen(dsn)) == sorted(names(*range(16)))


async def test_rebalances_under_load(kafka, dsn, topic, options):
    """A member that comes and goes every second; every record is stored once."""
    await create_topic(kafka.bootstrap_servers, topic, 4)

    async def disturb():
        for _ in range(5):
            async with running_worker(dsn, options) as other:
                await eventually(lambda: other.worker._consumer and other.worker._consumer.joined, 60)

    async with running_worker(dsn, options), asyncio.TaskGroup() as group:
        disturbing = group.create_task(disturb())
        number = 0
        while not disturbing.done():
            await spread(kafka, topic, *range(number, number + 4))
            number += 4
        await eventually(lambda: seen_all(dsn, names(*range(number))), 60)
    assert sorted(await list_seen(dsn)) == sorted(names(*range(number)))


async def test_f26_slow_work_keeps_its_place(kafka, dsn, topic, options):
    """A transaction far longer than the session timeout: no rebalance, no repeat."""
    await create_topic(kafka.bootstrap_servers, topic)
    release = asyncio.Event()
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.heard("partitions_assigned"))
        running.recorder.before_commit = lambda poll: release.wait()
        await produce(kafka.bootstrap_servers, topic, *jobs(0))
        await asyncio.wait([asyncio.create_task(release.wait())], timeout=2 * options.session_timeout)
        release.set()
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        assert len(running.heard("partitions_assigned")) == 1
    assert await list_seen(dsn) == ["j0"]


@pytest.mark.parametrize("seconds", [2, 20])
async def test_f27_a_frozen_broker(kafka, dsn, topic, options, seconds):
    await create_topic(kafka.bootstrap_servers, topic)
    limits = replace(QUICK, answer_within=4.0)
    async with running_worker(dsn, options, limits=limits) as running:
        await produce(kafka.bootstrap_servers, topic, *jobs(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        kafka.freeze()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.Event().wait()
        if seconds > 10:
            assert not await running.worker.kafka_answers()
        assert not running.heartbeats.list_silent()
        kafka.thaw()
        await produce(kafka.bootstrap_servers, topic, *jobs(1, 2))
        await eventually(lambda: seen_all(dsn, names(0, 1, 2)), 60)
        await eventually(running.worker.kafka_answers)
    assert await list_seen(dsn) == names(0, 1, 2)


@pytest.mark.parametrize("kill", [False, True])
async def test_f27_a_restarted_broker(kafka, dsn, topic, options, kill):
    await create_topic(kafka.bootstrap_servers, topic)
    async with running_worker(dsn, options) as running:
        await produce(kafka.bootstrap_servers, topic, *jobs(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        await kafka.restart(kill=kill)
        await produce(kafka.bootstrap_servers, topic, *jobs(1))
        await eventually(lambda: seen_all(dsn, names(0, 1)), 90)
    assert await list_seen(dsn) == names(0, 1)


async def test_f32_a_broker_that_stays_away(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic)
    limits = replace(QUICK, join_within=5.0, answer_within=4.0)
    async with running_worker(dsn, options, limits=limits) as running:
        await produce(kafka.bootstrap_servers, topic, *jobs(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        await kafka.stop()
        await eventually(lambda: len(running.heard("kafka_unavailable")) >= 3, 90)
        assert not await running.worker.kafka_answers()
        assert not running.heartbeats.list_silent()
        await kafka.start()
        await produce(kafka.bootstrap_servers, topic, *jobs(1))
        await eventually(lambda: seen_all(dsn, names(0, 1)), 90)
        await eventually(running.worker.kafka_answers)


async def test_a_start_without_a_broker(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic)
    await produce(kafka.bootstrap_servers, topic, *jobs(0))
    await kafka.stop()
    async with running_worker(dsn, options) as running:
        await eventually(lambda: len(running.heard("kafka_unavailable")) >= 2)
        await kafka.start()
        await eventually(lambda: running.counts.outcomes["applied"] == 1, 60)


@pytest.mark.parametrize("harm", ["freeze", "stop"])
async def test_a_stop_while_the_broker_is_away(kafka, dsn, topic, options, harm):
    await create_topic(kafka.bootstrap_servers, topic)
    async with running_worker(dsn, options, drain=60.0) as running:
        await produce(kafka.bootstrap_servers, topic, *jobs(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        if harm == "freeze":
            kafka.freeze()
        else:
            await kafka.stop()
        assert await running.end() < 30  # half its budget
    await kafka.start()


async def test_f29_f30_nothing_is_passed_over(kafka, dsn, topic, options):
    """Record 4 cannot be stored for a while, and then the process is gone: offsets never pass it."""
    await create_topic(kafka.bootstrap_servers, topic)
    await produce(kafka.bootstrap_servers, topic, *jobs(*range(1, 8)))
    limits = replace(QUICK, max_records=1)
    async with running_worker(dsn, options, limits=limits) as running:
        slow = asyncio.Event()
        running.recorder.before_commit = lambda poll: slow.wait() if poll.records[0].offset == 3 else None
        await eventually(lambda: seen_all(dsn, names(1, 2, 3)))
        await asyncio.wait([running.task], timeout=1.0)
        await running.kill()
    rows = await query(dsn, "SELECT next_offset FROM kafka_offsets")
    assert rows[0]["next_offset"] == 3
    async with running_worker(dsn, options) as running:
        await eventually(lambda: seen_all(dsn, names(*range(1, 8))), 60)
    assert await list_seen(dsn) == names(*range(1, 8))


async def test_f31_a_rebalance_during_a_busy_poll(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic, 4)
    async with running_worker(dsn, options) as one:
        await eventually(lambda: one.heard("partitions_assigned"))
        release = asyncio.Event()
        one.recorder.before_commit = lambda poll: release.wait()
        await spread(kafka, topic, *range(8))
        async with running_worker(dsn, options) as other:
            await eventually(lambda: other.worker._consumer and other.worker._consumer.joined)
            release.set()
            await eventually(lambda: seen_all(dsn, names(*range(8))))
    assert sorted(await list_seen(dsn)) == sorted(names(*range(8)))


async def test_missed_records_are_counted(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic)
    await produce(kafka.bootstrap_servers, topic, *jobs(*range(10)))
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 10)
    await produce(kafka.bootstrap_servers, topic, *jobs(*range(10, 20)))
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap_servers)
    await admin.start()
    await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before_offset=14)})
    await admin.close()
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 6)
    assert running.counts.anomalies == {"missed_records": 4}
    assert running.heard("missed_records")[0]["missed"] == 4


async def test_aborted_and_control_records_are_no_lag(kafka, dsn, topic, options):
    from aiokafka import AIOKafkaProducer

    await create_topic(kafka.bootstrap_servers, topic)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic)
    await producer.start()
    try:
        async with producer.transaction():
            await producer.send(topic, jobs(0)[0])
        with contextlib.suppress(ZeroDivisionError):
            async with producer.transaction():
                await producer.send_and_wait(topic, jobs(1)[0])
                raise ZeroDivisionError
    finally:
        await producer.stop()
    limits = replace(QUICK, renew_after=1.0)
    async with running_worker(dsn, options, limits=limits) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 1)
        await eventually(lambda: list(running.counts.behind.values()) == [0])
        before = len(running.heard("kafka_unavailable"))
        await asyncio.wait([running.task], timeout=2.0)
        assert len(running.heard("kafka_unavailable")) == before
    assert await list_seen(dsn) == ["j0"]


async def test_more_workers_than_partitions_are_ready(kafka, dsn, topic, options):
    await create_topic(kafka.bootstrap_servers, topic)
    limits = replace(QUICK, answer_within=2.0)
    async with running_worker(dsn, options, limits=limits) as one, running_worker(dsn, options, limits=limits) as other:
        await eventually(lambda: one.worker._consumer and one.worker._consumer.joined)
        await eventually(lambda: other.worker._consumer and other.worker._consumer.joined)
        await asyncio.wait([one.task], timeout=3.0)
        await eventually(one.worker.kafka_answers)
        await eventually(other.worker.kafka_answers)


async def test_a_topic_that_appears_later(kafka, dsn, topic, options):
    async with running_worker(dsn, options, limits=Limits(poll_wait=0.1, join_within=30.0)) as running:
        await eventually(lambda: running.worker._consumer is not None)
        await create_topic_unless_made(kafka, topic)
        await produce(kafka.bootstrap_servers, topic, *jobs(0))
        await eventually(lambda: running.counts.outcomes["applied"] == 1, 90)


async def create_topic_unless_made(kafka, topic):
    with contextlib.suppress(Exception):
        await create_topic(kafka.bootstrap_servers, topic)
