"""What is told of the service's own work: once to who asked for it and to a topic; to tenants only what they may know."""

from collections.abc import Sequence
from datetime import timedelta

import orjson
import pytest

from service.api.parts import ApiLimits
from service.domain.health import Health
from service.domain.operational import OperationalEvent
from service.ingest.bodies import encode_json
from service.ports import StoreUnavailable
from service.store.operational import OperationalStore
from service.upkeep.operational import OperationalNews
from tests.support.api import URL_1, URL_2, running_api
from tests.support.delivering import Queue, deliver
from tests.support.receivers import answering, receive

PATH = "/v1/webhooks"
FAILED = b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"
GONE = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"


@pytest.fixture
async def api(database):
    limits = ApiLimits(writes=1000, test_wait=timedelta(milliseconds=100))  # nobody delivers here
    async with running_api(database, limits=limits) as api:
        yield api


class Sent:
    """Stands for the topic: takes what is sent, or is away."""

    def __init__(self) -> None:
        self.events: list[OperationalEvent] = []
        self.away = False

    async def send(self, events: Sequence[OperationalEvent]) -> None:
        if self.away:
            raise StoreUnavailable("away")
        self.events += events

    @property
    def told(self) -> list[tuple[str, str]]:
        return [(event.type, event.webhook_id) for event in self.events]


def news_for_subscribers(api):
    return OperationalNews(OperationalStore(api.database, encode_json), "subscribers")


async def exhaust(api, webhook_id, error):
    """A job's message to this webhook, given up."""
    await api.send(api.event("job.completed", f"job-{webhook_id}", status="failed", webhook_id=webhook_id))
    await api.conclude(5, "exhausted", "job_id IS NOT NULL")
    await api.fetch("UPDATE deliveries_done SET last_error = $1", error)


async def disable(api, webhook_id, reason):
    await api.fetch(
        "UPDATE webhooks SET state = 2, state_reason = $2, state_at = now(), changed_at = now() WHERE webhook_id = $1",
        webhook_id,
        reason,
    )


async def list_told(api):
    rows = await api.fetch(
        "SELECT webhook_id FROM deliveries JOIN webhooks USING (webhook_key) WHERE type = 'webhook.disabled'"
    )
    return [row["webhook_id"] for row in rows]


async def bodies(api):
    rows = await api.fetch("SELECT body FROM message_bodies JOIN messages USING (message_id) WHERE scope = 2")
    return [orjson.loads(row["body"]) for row in rows]


@pytest.mark.parametrize(
    ("recorded", "told"),
    [
        ("dns_error nxdomain", "unreachable_name"),
        ("blocked_address private_address", "unreachable_name"),
        ("http_error 500", "http_error 500"),
        (None, None),
    ],
)
async def test_f69_a_subscriber_cannot_tell_a_blocked_name_from_one_that_does_not_exist(api, recorded, told):
    await api.post(PATH, {"id": "whk_a", "url": URL_1})
    await api.post(PATH, {"id": "whk_b", "url": URL_2, "event_types": ["delivery.exhausted"]})
    await exhaust(api, "whk_a", recorded)
    await news_for_subscribers(api).run_once()
    (body,) = await bodies(api)
    assert (body["type"], body["data"]["last_error"]) == ("delivery.exhausted", told)


async def test_operators_read_in_the_topic_which_it_was(api):
    await api.post(PATH, {"id": "whk_a", "url": URL_1})
    await exhaust(api, "whk_a", "blocked_address private_address")
    topic = Sent()
    await OperationalNews(OperationalStore(api.database, encode_json), "topic", topic.send).run_once()
    assert [event.data["last_error"] for event in topic.events] == ["blocked_address private_address"]


async def test_f60_the_topic_has_each_event_once(api):
    topic = Sent()
    news = OperationalNews(OperationalStore(api.database, encode_json), "topic", topic.send)
    for name in ("whk_a", "whk_b"):
        await api.post(PATH, {"id": name, "url": URL_1})
    await disable(api, "whk_a", "gone")
    topic.away = True
    with pytest.raises(StoreUnavailable):
        await news.run_once()
    topic.away = False
    for _ in range(3):
        await news.run_once()
    assert topic.told == [("webhook.disabled", "whk_a")]
    await exhaust(api, "whk_b", "timeout")
    for _ in range(3):
        await news.run_once()
    assert topic.told == [("webhook.disabled", "whk_a"), ("delivery.exhausted", "whk_b")]


async def test_f60_one_id_in_two_tenants_is_two_webhooks(api):
    for client in (api, api.as_tenant("t2")):
        await client.post(PATH, {"id": "whk_a", "url": URL_1})
        await client.post(PATH, {"id": "whk_b", "url": URL_2, "event_types": ["webhook.disabled"]})
    await disable(api, "whk_a", "gone")  # both at one instant
    topic = Sent()
    await OperationalNews(OperationalStore(api.database, encode_json), "topic", topic.send).run_once()
    assert sorted(event.tenant_id for event in topic.events) == ["t1", "t2"]
    await news_for_subscribers(api).run_once()
    rows = await api.fetch("SELECT tenant_id FROM deliveries ORDER BY tenant_id")
    assert [row["tenant_id"] for row in rows] == ["t1", "t2"]


async def test_another_outage_of_the_same_webhook_is_told_again(api):
    topic = Sent()
    news = OperationalNews(OperationalStore(api.database, encode_json), "topic", topic.send)
    await api.post(PATH, {"id": "whk_a", "url": URL_1})
    for reason in ("gone", "failing"):
        await disable(api, "whk_a", reason)
        await news.run_once()
        await api.post(f"{PATH}/whk_a/enable")
    assert [event.reason for event in topic.events] == ["gone", "failing"]


async def test_only_who_names_the_type_is_told_and_never_of_itself(api):
    for name, types in (
        ("whk_a", ["webhook.disabled"]),
        ("whk_b", ["webhook.disabled"]),
        ("whk_c", ["*"]),
        ("whk_d", ["webhook.*"]),
        ("whk_e", ["delivery.exhausted"]),
        ("whk_f", []),
    ):
        await api.post(PATH, {"id": name, "url": URL_1, "event_types": types})
    await api.as_tenant("t2").post(PATH, {"id": "whk_b", "url": URL_1, "event_types": ["webhook.disabled"]})
    await disable(api, "whk_a", "gone")
    for _ in range(2):
        await news_for_subscribers(api).run_once()
    rows = await api.fetch("SELECT webhook_id, d.type, extra FROM deliveries AS d JOIN webhooks USING (webhook_key)")
    assert [tuple(row) for row in rows] == [("whk_b", "webhook.disabled", 3)]
    (body,) = await bodies(api)
    assert set(body) == {"type", "timestamp", "data"}
    assert set(body["data"]) == {"webhook_id", "url_host", "reason", "at"}
    assert body["data"] | {"at": None} == {
        "webhook_id": "whk_a", "url_host": "receiver.example", "reason": "gone", "at": None,
    }  # fmt: skip


async def test_operational_and_test_deliveries_that_are_given_up_cause_none(api):
    for name in ("whk_a", "whk_b"):
        await api.post(PATH, {"id": name, "url": URL_1, "event_types": ["webhook.disabled", "delivery.exhausted"]})
    await api.post(PATH, {"id": "whk_c", "url": URL_1})
    await disable(api, "whk_c", "gone")
    await news_for_subscribers(api).run_once()
    await api.post(f"{PATH}/whk_b/test")
    await api.conclude(5, "exhausted")
    assert await api.value("SELECT count(*) FROM deliveries_done") == 3
    await news_for_subscribers(api).run_once()
    assert await api.value("SELECT count(*) FROM deliveries") == 0


@pytest.mark.parametrize(("work_failed", "told"), [(True, ["whk_2"]), (False, [])])
async def test_an_outage_that_work_has_shown_is_told_though_it_ends_with_an_operational_delivery(
    api, database, work_failed, told
):
    await api.post(PATH, {"id": "whk_2", "url": URL_1, "event_types": ["webhook.disabled"]})
    async with receive(answering(FAILED)) as receiver, Queue(database) as queue:
        hook = await queue.webhook(receiver.url())
        began = await queue.now() - timedelta(days=6)
        await queue.store_health(hook, Health(began, failures=20, window=5, failed_windows=3, work_failed=work_failed))
        async with deliver(database):
            await queue.deliveries(hook, type="delivery.exhausted", scope=2, extra=3)
            await queue.wait("webhooks", "webhook_key = $1 AND state = 2 AND state_reason = 'failing'", hook)
    await news_for_subscribers(api).run_once()
    assert await list_told(api) == told


@pytest.mark.parametrize(("type_", "told"), [("delivery.exhausted", []), ("extraction.completed", ["whk_2"])])
async def test_an_operational_delivery_disables_its_webhook_without_a_word_to_others(api, database, type_, told):
    await api.post(PATH, {"id": "whk_2", "url": URL_1, "event_types": ["webhook.disabled"]})
    async with receive(answering(GONE)) as receiver, Queue(database) as queue, deliver(database):
        hook = await queue.webhook(receiver.url())
        await queue.deliveries(hook, type=type_, scope=2 if told == [] else 1, extra=3 if told == [] else 0)
        await queue.wait("webhooks", "webhook_key = $1 AND state = 2 AND state_reason = 'gone'", hook)
    await news_for_subscribers(api).run_once()
    assert await list_told(api) == told
    topic = Sent()
    await OperationalNews(OperationalStore(api.database, encode_json), "topic", topic.send).run_once()
    assert [event.type for event in topic.events] == ["webhook.disabled"]
