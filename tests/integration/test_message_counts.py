"""`messages_total`: every message is counted once, by what it is about; what makes no message is not counted."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from service.api.parts import ApiLimits
from service.domain.batches import Settling
from service.domain.operational import DeliveryExhausted
from service.ingest.applying import Ingestor
from service.ingest.bodies import encode_json
from service.ingest.parsing import Parser
from service.ingest.poll import Poll
from service.ingest.reading import Reader
from service.lifecycle import SystemClock
from service.profiles import load_profiles
from service.store.ingesting import PostgresIngestStore
from service.store.operational import OperationalStore, StoredNews
from service.store.routing import OneShots, RoutingCopy
from service.telemetry import Telemetry
from tests.support.api import SEALER, URL_1, build_announcer, running_api
from tests.support.ingest import build_event
from tests.support.metrics import value
from tests.support.senders import loopback_policy


@pytest.fixture
def made():
    return Counter()


@pytest.fixture
async def api(database, made):
    limits = ApiLimits(writes=1000, test_wait=timedelta(milliseconds=100))  # nobody delivers here
    async with running_api(database, limits=limits, made=lambda *what: made.update([what])) as running:
        yield running


def build_ingestor(database, telemetry):
    profiles = load_profiles()
    store = PostgresIngestStore(database, RoutingCopy(), OneShots(SEALER, loopback_policy(), lambda: "whk_1"))
    settling = Settling(timedelta(0), timedelta(0))
    return Ingestor(store, profiles, build_announcer(profiles), settling, telemetry)


async def test_a_run_that_nobody_asked_about_makes_no_message_and_counts_as_none(api):
    telemetry = Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=(timedelta(seconds=5),))
    ingestor = build_ingestor(api.database, telemetry)
    day = timedelta(days=1)
    reader = Reader(Parser(load_profiles()), SystemClock(), notify_max_age=day, retention_state=day)

    async def ingest(job_id, **fields):
        event = build_event(job_id, event_type="job.completed", status="succeeded", tenant_id="t1", **fields)
        await ingestor.ingest(Poll((reader.read_alone(event),)))

    def counted():
        names = (
            ("batch", "false"),
            ("batch", "true"),
            ("job", "false"),
            ("job", "true"),
            ("none", "false"),
            ("none", "true"),
        )
        found = {name: value(telemetry, "messages_total", scope=name[0], renotified=name[1]) for name in names}
        return {name: count for name, count in found.items() if count}

    await ingest("unwanted")
    assert counted() == {}
    await ingest("member", batch={"name": "nov"})  # every finish stores its message, wanted or not
    assert counted() == {("batch", "false"): 1}
    await api.post("/v1/webhooks", {"id": "whk_a", "url": URL_1})
    await ingest("wanted", webhook_id="whk_a")
    await ingest("wanted", webhook_id="whk_a")
    await ingest("wanted", webhook_id="whk_a", generation=2)
    await ingest("member", batch={"name": "nov"}, generation=2)
    assert counted() == {("batch", "false"): 1, ("batch", "true"): 1, ("job", "false"): 1, ("job", "true"): 1}
    assert await api.value("SELECT count(*) FROM messages") == sum(counted().values())


async def test_tests_and_copies_are_counted(api, made):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov")
    assert (await api.post("/v1/batches/nov/renotify", {"force": True})).status == 202
    assert made == {}  # the same message goes out again
    assert (await api.post("/v1/batches/nov/renotify", {"new_id": True, "force": True})).status == 202
    assert made == {("batch", True): 1}
    await api.conclude()
    webhook = await api.post("/v1/webhooks", {"url": URL_1, "timeout_seconds": 1})
    await api.post(f"/v1/webhooks/{webhook.json['webhook_id']}/test")
    assert made == {("batch", True): 1, ("none", False): 1}


async def test_operational_messages_are_counted_when_they_are_made(api):
    for name, types in (("whk_a", ["delivery.exhausted"]), ("whk_b", ["delivery.exhausted"]), ("whk_c", ["*"])):
        await api.post("/v1/webhooks", {"id": name, "url": URL_1, "event_types": types})
    counted = []
    store = OperationalStore(api.database, encode_json, counted.append)
    now = datetime.now(UTC)
    gone = DeliveryExhausted(
        "t1", "whk_x", "receiver.example", "exhausted", now, "dlv_1", "msg_1", None, "j", 3, "timeout"
    )

    async def tell() -> StoredNews:
        async with store.open_news("subscribers", 10, None) as news:
            news.events = [gone]
            await news.tell_subscribers()
            return news

    await tell()
    assert counted == [1]  # one message, two deliveries
    assert await api.value("SELECT count(*) FROM deliveries") == 2
    await tell()
    assert counted == [1]
