"""A topic that is deleted and made anew, with offsets from 0: noticed under way, and safe the way the runbook says."""

import pytest
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from service.ingest.broker import KafkaOptions
from tests.support.ingest import build_events, eventually, list_seen, prepare_schema, produce, query, running_worker
from tests.support.prometheus import ROOT

FORGET = "DELETE FROM kafka_offsets WHERE topic = "


@pytest.fixture
async def dsn(new_database):
    return await prepare_schema(await new_database(migrated=False))


@pytest.fixture
def options(broker, topic):
    return KafkaOptions(bootstrap_servers=(broker,), topics=(topic,), group_id=topic)


async def make_anew(broker, topic):
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        await admin.delete_topics([topic])

        async def made() -> bool:
            answer = await admin.create_topics([NewTopic(topic, 1, 1)])
            return all(error == 0 for _, error, *_ in answer.topic_errors)

        await eventually(made)
    finally:
        await admin.close()


async def test_under_way_it_is_noticed_and_read_from_its_start(dsn, broker, topic, options):
    async with running_worker(dsn, options) as running:
        await produce(broker, topic, *build_events(0, 1, 2, 3, 4))
        await eventually(lambda: running.counts.outcomes["applied"] == 5)
        await make_anew(broker, topic)
        await produce(broker, topic, *build_events(10, 11))
        await eventually(lambda: running.counts.outcomes["applied"] == 7)
    assert running.counts.anomalies == {"missed_records": 1}


async def test_with_its_offsets_forgotten_all_of_it_is_read(dsn, broker, topic, options):
    """Where it has more records already than were read of the old one, nothing else tells the two apart."""
    async with running_worker(dsn, options) as running:
        await produce(broker, topic, *build_events(0, 1, 2))
        await eventually(lambda: running.counts.outcomes["applied"] == 3)
    await make_anew(broker, topic)
    await produce(broker, topic, *build_events(10, 11, 12, 13, 14))
    assert FORGET in " ".join((ROOT / "grafana" / "RUNBOOK.md").read_text().split())
    await query(dsn, f"{FORGET}'{topic}'")
    async with running_worker(dsn, options) as running:
        await eventually(lambda: running.counts.outcomes["applied"] == 5)
    assert (await list_seen(dsn))[-5:] == ["j10", "j11", "j12", "j13", "j14"]
