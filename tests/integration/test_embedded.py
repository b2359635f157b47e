"""The embedded servers do what the service needs of them."""

import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncpg
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.conn import AIOKafkaConnection, create_conn
from aiokafka.errors import MemberIdRequired
from aiokafka.protocol.api import Response
from aiokafka.protocol.group import JoinGroupRequest

from service.tools.embedded import embedded_postgres


async def test_postgres_is_durable_and_roomy(postgres):
    connection = await asyncpg.connect(postgres)
    settings = {name: await connection.fetchval(f"SHOW {name}") for name in ("fsync", "synchronous_commit")}
    assert settings == {"fsync": "on", "synchronous_commit": "on"}
    assert int(await connection.fetchval("SHOW max_connections")) >= 200
    assert connection.get_server_version().major >= 14
    await connection.close()


async def test_postgres_keeps_its_data_directory(tmp_path: Path):
    async with embedded_postgres(tmp_path) as dsn:
        connection = await asyncpg.connect(dsn)
        await connection.execute("CREATE TABLE kept AS SELECT 1 AS x")
        await connection.close()
    async with embedded_postgres(tmp_path) as dsn:
        connection = await asyncpg.connect(dsn)
        assert await connection.fetchval("SELECT x FROM kept") == 1
        await connection.close()


async def test_databases_are_made_and_dropped(new_database):
    one, other = await new_database(migrated=False), await new_database(migrated=False)
    assert one != other


PARENT = """
import asyncio, os
from service.tools.embedded import embedded_broker, embedded_postgres
async def main():
    async with embedded_postgres() as dsn, embedded_broker() as broker:
        print(dsn, broker, flush=True)
        await asyncio.sleep(600)
asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children that their parent died")
async def test_servers_die_with_a_killed_parent():
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, stdout=asyncio.subprocess.PIPE)
    await asyncio.wait_for(parent.stdout.readline(), 60)
    children = [int(pid) for pid in Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()]
    assert len(children) == 2
    scratch = [Path(f"/proc/{pid}/fd/1").readlink().parent for pid in children]  # where the log is
    parent.kill()
    await parent.wait()
    async with asyncio.timeout(60):
        while any(_runs(pid) for pid in children):
            await asyncio.sleep(0.02)
    for directory in scratch:  # the one thing that a killed parent cannot take along
        shutil.rmtree(directory)


def _runs(pid: int) -> bool:
    """Whether the process is there, and not only its entry, which waits for somebody to collect it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_broker_carries_keys_headers_and_tombstones(broker, topic):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 3, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True) as producer:
        for number in range(30):
            await producer.send(topic, b"%d" % number, key=b"k%d" % number, headers=[("traceparent", b"00-1")])
        await producer.send_and_wait(topic, None, key=b"k0")
    async with build_consumer(broker, topic) as consumer:
        records = await take(consumer, 31)
        assert {record.partition for record in records} == {0, 1, 2}
        assert all(dict(record.headers) == {"traceparent": b"00-1"} for record in records if record.value)
        assert [record.key for record in records if record.value is None] == [b"k0"]
        await consumer.commit()
        assert sum((await consumer.end_offsets(list(consumer.assignment()))).values()) == 31


async def test_broker_shares_partitions_in_a_group_and_resumes_at_the_commit(broker, topic):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 2, 1)])
    await admin.close()
    async with AIOKafkaProducer(bootstrap_servers=broker) as producer:
        for number in range(20):
            await producer.send_and_wait(topic, b"%d" % number, partition=number % 2)
    async with build_consumer(broker, topic) as one:
        await take(one, 20)
        await one.commit({TopicPartition(topic, 0): 10, TopicPartition(topic, 1): 7})
        async with build_consumer(broker, topic) as two, asyncio.timeout(60):
            records = await take(two, 3) if TopicPartition(topic, 1) in two.assignment() else await take(one, 3)
            assert [(record.partition, record.offset) for record in records] == [(1, 7), (1, 8), (1, 9)]
            assert len(one.assignment()) == len(two.assignment()) == 1


async def test_who_joins_just_as_a_rebalance_ends_throws_nobody_out_of_the_group(broker):
    moments = (milliseconds / 1000 for milliseconds in range(290, 340, 2))  # a group's first rebalance takes 300 ms
    await asyncio.gather(*(join_one_after_the_other(broker, seconds) for seconds in moments))


async def join_one_after_the_other(broker: str, seconds: float) -> None:
    group = f"g-{secrets.token_hex(6)}"
    async with opened_connection(broker) as one, opened_connection(broker) as two:
        leading = asyncio.create_task(join(one, group))
        await asyncio.sleep(seconds)
        following = asyncio.create_task(join(two, group))
        leader = await leading
        following.cancel()
        assert leader.leader_id == leader.member_id
        assert leader.member_id in {member[0] for member in leader.members}


@asynccontextmanager
async def opened_connection(broker: str) -> AsyncIterator[AIOKafkaConnection]:
    host, _, port = broker.partition(":")
    connection = await create_conn(host, int(port))
    try:
        yield connection
    finally:
        connection.close()


async def join(connection: AIOKafkaConnection, group: str) -> Response:
    """Join by hand: a consumer reaches the broker at no moment that can be chosen."""
    member_id = ""
    while True:
        answer = await connection.send(
            JoinGroupRequest(group, 6000, 3000, member_id, None, "consumer", [("range", b"")])
        )
        member_id = answer.member_id
        if answer.error_code != MemberIdRequired.errno:
            return answer


async def test_an_idle_consumer_leaves_the_processor_alone(broker, topic):
    async with build_consumer(broker, topic) as consumer:
        await consumer.getmany(timeout_ms=100)
        before = os.times()
        await consumer.getmany(timeout_ms=1000)
        after = os.times()
    assert (after.user + after.system) - (before.user + before.system) < 0.5


def build_consumer(broker: str, topic: str) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        topic, bootstrap_servers=broker, group_id=topic, enable_auto_commit=False, auto_offset_reset="earliest"
    )


async def take(consumer: AIOKafkaConsumer, count: int) -> list:
    records = []
    async with asyncio.timeout(60):
        while len(records) < count:
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                records += batch
    return records
