"""The real broker can be used and broken as the other tests of this kind need."""

import asyncio

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def test_a_foreign_client_and_ours_meet(kafka, topic):
    options = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    await kafka.produce(topic, "a:1\tk\tv\na:2\tk\tNULL\n", *(f"--property={option}" for option in options))
    assert await read(kafka, topic, 2) == [(b"k", b"v", (("a", b"1"),)), (b"k", None, (("a", b"2"),))]


async def test_records_outlive_a_killed_broker(kafka, topic):
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, b"before")
        await kafka.restart(kill=True)
        await producer.send_and_wait(topic, b"after")
    assert [value for _, value, _ in await read(kafka, topic, 2)] == [b"before", b"after"]


async def test_a_frozen_broker_answers_when_thawed(kafka, topic):
    async with AIOKafkaProducer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        await producer.send_and_wait(topic, b"one")
        kafka.freeze()
        sent = await producer.send(topic, b"two")
        assert not (await asyncio.wait({asyncio.ensure_future(sent)}, timeout=0.2))[0]
        kafka.thaw()
        await asyncio.wait_for(sent, 60)
    assert len(await read(kafka, topic, 2)) == 2


async def read(kafka, topic, count):
    records = []
    async with (
        asyncio.timeout(60),
        AIOKafkaConsumer(
            topic, bootstrap_servers=kafka.bootstrap_servers, group_id=topic, auto_offset_reset="earliest"
        ) as consumer,
    ):
        while len(records) < count:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += [(record.key, record.value, record.headers) for record in batch]
    return records
