"""What the installed service tells of its own work, to tenants and to the operational topic."""

import asyncio
import itertools

import orjson
import pytest
from aiokafka import AIOKafkaConsumer

from tests.e2e.story import completed, create_topic
from tests.support.receiving import Receiver

_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def operational_topic(portal, broker, shared_topic):
    name = f"{shared_topic}-operational"
    portal.call(create_topic, broker, name, 1)
    return name


@pytest.fixture(scope="module")
def more_settings(operational_topic):
    return {"WEBHOOKD_OPERATIONAL_TOPIC": operational_topic}


@pytest.fixture
async def records(broker, operational_topic):
    """Reads the topic from its beginning."""
    consumer = AIOKafkaConsumer(operational_topic, bootstrap_servers=broker, auto_offset_reset="earliest")
    await consumer.start()
    yield consumer
    await consumer.stop()


async def read(records):
    async with asyncio.timeout(60):
        record = await records.getone()
    return record.key.decode(), dict(record.headers), orjson.loads(record.value)


async def test_an_outage_and_a_given_up_delivery_are_told_once_to_whom_it_concerns(tenant, receiver, records):
    async with Receiver() as gone, Receiver() as everything:
        gone.answer(410)
        disabled = await tenant.register(gone)
        named = ["webhook.disabled", "delivery.exhausted"]
        secret = (await tenant.register(receiver, event_types=named))["secret"]
        await tenant.register(everything, event_types=["*"])

        await tenant.produce(completed("A", webhook_id=disabled["webhook_id"]))
        await receiver.wait_for(1)
        first = receiver.arrivals[0].verify(secret)
        assert (first.type, first.headers["webhook-event-type"]) == ("webhook.disabled", "webhook.disabled")
        assert first.data == {
            "webhook_id": disabled["webhook_id"], "url_host": "127.0.0.1", "reason": "gone", "at": first.document["timestamp"],
        }  # fmt: skip
        assert set(first.document) == {"type", "timestamp", "data"}

        lost = await tenant.api.post("/v1/webhooks", {"url": "http://nowhere.invalid/", "retry_schedule": [1]})
        await tenant.produce(completed("B", webhook_id=lost["webhook_id"]))
        await receiver.wait_for(2)
        second = receiver.arrivals[1].verify(secret)
        failed = await tenant.delivery("failed", job="B")
        assert second.type == "delivery.exhausted"
        assert second.data == {
            "webhook_id": lost["webhook_id"], "url_host": "nowhere.invalid", "reason": "exhausted",
            "at": second.document["timestamp"], "delivery_id": failed["delivery_id"], "message_id": failed["message_id"],
            "job_id": "B", "attempts": 2, "last_error": "unreachable_name",
        }  # fmt: skip
        assert {arrival.type for arrival in everything.arrivals} == {"extraction.completed"}

        found = [await read(records), await read(records)]
        assert [body["type"] for _, _, body in found] == ["webhook.disabled", "delivery.exhausted"]
        assert {key for key, _, _ in found} == {tenant.tenant_id}
        assert [headers["webhook-id"].decode() for _, headers, _ in found] == [first.message_id, second.message_id]
        assert found[0][2] == first.document
        told = found[1][2]["data"]
        assert told["last_error"].startswith("dns_error")
        assert told | {"last_error": "unreachable_name"} == second.data
    assert len(receiver.arrivals) == 2
