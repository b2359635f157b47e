"""One wide line for each change of state, from the process whose write made it; no secret, path or header value in it."""

import asyncio
from datetime import timedelta

import pytest

from service.domain.attempts import Outcome, OutcomeClass
from service.domain.health import Breaker, Health, HealthRules
from service.logs.redaction import Redactor
from service.store.catalog import WebhookCatalog
from service.store.database import Database
from service.store.holds import Holds
from service.upkeep.release import Release
from tests.support.api import URL_1, URL_2, running_api
from tests.support.delivering import SEALER, Queue, Watcher, build_defaults, deliver, until
from tests.support.scripted import Scripted

FAILED = Outcome(OutcomeClass.HTTP_ERROR, 500)
OK = Outcome(OutcomeClass.DELIVERED, 204)
RULES = HealthRules(open_failures=3, open_after=timedelta(0), probe_base=timedelta(seconds=600), ramp_limit=2)
HOOK = "/v1/webhooks/whk_1"


@pytest.fixture
async def api(database):
    async with running_api(database) as api:
        yield api


def names(told):
    return [event for event, _ in told]


# --- the breaker ------------------------------------------------------------------------------------------------------


async def test_a_breaker_tells_each_of_its_moves_once(database):
    """Two processes send to the same webhook; who holds the row makes the move, and tells it."""
    one, two = Scripted(), Scripted()
    defaults = build_defaults(rules=RULES)
    async with (
        Queue(database) as queue,
        deliver(database, sender=one, defaults=defaults) as first,
        deliver(database, sender=two, defaults=defaults) as second,
    ):

        def breaker_lines():
            told = [*first.watcher.events, *second.watcher.events]
            return [(event, fields) for event, fields in told if event.startswith("breaker_")]

        hook = await queue.webhook("http://receiver.test/private?token=1")
        for _ in range(RULES.open_failures):
            await queue.deliveries(hook, 1)
            await until(lambda: one.open or two.open)
            (one if one.open else two).end(FAILED)
        await until(breaker_lines)
        ((event, fields),) = breaker_lines()
        assert event == "breaker_opened"
        assert (fields["tenant_id"], fields["origin"], fields["failures"]) == ("t1", "http://receiver.test", 3)
        assert (fields["last_error"], "private" in str(fields)) == ("http_error 500", False)
        assert fields["webhook_id"]
        assert fields["probe_at"]
        due = Health(await queue.now(), failures=3, breaker=Breaker.OPEN, probes=1)
        await queue.store_health(hook, due)
        await queue.execute("UPDATE deliveries SET due_at = now()")
        while len(breaker_lines()) < 3:
            await queue.deliveries(hook, 1)
            await until(lambda: one.open or two.open or len(breaker_lines()) >= 3)
            if one.open or two.open:
                (one if one.open else two).end(OK)
    assert sorted(event for event, _ in breaker_lines()) == ["breaker_closed", "breaker_half_opened", "breaker_opened"]


# --- ends without an attempt ------------------------------------------------------------------------------------------


async def test_ends_by_upkeep_are_told_once_by_whoever_makes_them(database):
    watchers = [Watcher(), Watcher()]
    async with Queue(database) as queue, Database(database, size=4) as db:
        held = await queue.deliveries(
            await queue.webhook("http://receiver.test/x", state=1), 5, state=2, reason="paused", attempts=2, job_id="j1"
        )
        await queue.execute("UPDATE deliveries SET due_at = NULL, held_at = now() - interval '150 s'")
        open_ = await queue.webhook("http://receiver.test/y")
        late = await queue.deliveries(open_, 5)
        await queue.store_health(open_, Health(await queue.now(), breaker=Breaker.OPEN))
        for delivery_id in late:
            await queue.shift(150, delivery_id)
        catalog = WebhookCatalog(db, SEALER)
        rounds = [Release(Holds(db, 100.0), catalog, each, each.tell).run_once() for each in watchers]
        await asyncio.gather(*rounds)
    told = [fields for each in watchers for event, fields in each.events if event == "delivery_ended"]
    assert sorted(fields["delivery_id"] for fields in told) == sorted(f"dlv_{each}" for each in (*held, *late))
    assert {(fields["state"], fields["reason"], fields["attempts"]) for fields in told} == {
        ("failed", "held_too_long", 2),
        ("failed", "exhausted", 0),
    }
    assert all(fields["webhook_id"] and fields["message_id"] and fields["tenant_id"] == "t1" for fields in told)
    assert {fields.get("job_id") for fields in told} == {"j1", None}
    assert sum(each.finished.get("failed", 0) for each in watchers) == 10


# --- the API ----------------------------------------------------------------------------------------------------------


async def test_a_webhooks_life_through_the_api_is_told(api):
    assert (await api.post("/v1/webhooks", {"id": "whk_1", "url": URL_1})).status == 201
    headers = {"X-Key": "header-value"}
    changes = {"url": URL_2, "custom_headers": headers, "signing": "ed25519"}
    assert (await api.call("PATCH", HOOK, changes)).status == 200
    assert (await api.call("PATCH", HOOK, changes)).status == 200  # nothing changes
    for step in ("pause", "pause", "enable", "enable", "rotate-secret", "revoke-previous-secret"):
        assert (await api.post(f"{HOOK}/{step}")).status in {200, 204}
    assert (await api.post(f"{HOOK}/revoke-previous-secret")).status == 204
    assert (await api.delete(HOOK)).status == 204
    assert (await api.post("/v1/signing-keys/rotate")).status == 200
    assert names(api.told) == [
        "webhook_registered", "webhook_changed", "webhook_paused", "webhook_enabled", "webhook_secret_rotated",
        "webhook_secret_revoked", "webhook_deleted", "default_secret_rotated",
    ]  # fmt: skip
    for event, fields in api.told:
        assert (fields["tenant_id"], bool(fields["key_id"])) == ("t1", True)
        assert fields.get("webhook_id", "whk_1") == "whk_1"
        values = str([value for name, value in fields.items() if name != "webhook_id"])
        assert not [word for word in ("whsec_", "/hook", "token", "header-value") if word in values], event
    changed = api.told[1][1]
    assert changed["changed"] == ["url", "custom_headers", "signing", "key_pair"]
    assert (changed["origin"], changed["kind"], changed["revision"]) == ("https://other.example:443", "account", 3)
    assert (api.told[2][1]["was"], api.told[2][1]["state"]) == ("enabled", "paused")


async def test_the_sink_lets_these_lines_pass_as_they_are(api):
    await api.post("/v1/webhooks", {"id": "whk_1", "url": URL_1})
    await api.call("PATCH", HOOK, {"url": URL_2})
    await api.post(f"{HOOK}/rotate-secret")
    assert len(api.told) == 3
    for _, fields in api.told:
        assert Redactor().fields(fields) == fields


async def test_the_webhook_of_a_batch_is_told_with_the_batchs_name(api):
    path = "/v1/batches/nov/webhook"
    for url in (URL_1, URL_1, URL_2):
        assert (await api.put(path, {"url": url})).status in {200, 201}
    await api.post(f"{path}/pause")
    await api.delete(path)
    assert names(api.told) == ["webhook_registered", "webhook_changed", "webhook_paused", "webhook_deleted"]
    assert {(fields["batch"], fields["kind"]) for _, fields in api.told} == {("nov", "batch")}


async def test_what_is_done_to_a_delivery_is_told(api):
    webhook_id = (await api.put("/v1/batches/nov/webhook", {"url": URL_1})).json["webhook_id"]
    await api.finish("nov")
    await api.send(api.event("job.completed", "j", status="succeeded", webhook_id="whk_none"))
    missing, waiting = await api.deliveries()
    path = f"/v1/deliveries/{waiting['delivery_id']}"
    assert (await api.post(f"{path}/redeliver")).status == 202
    assert (await api.post(f"{path}/cancel")).status == 200
    assert (await api.post(f"{path}/cancel")).status == 409
    await api.post("/v1/webhooks", {"id": "whk_none", "url": URL_1})
    assert (await api.post(f"/v1/deliveries/{missing['delivery_id']}/redeliver")).status == 202
    told = [(event, fields) for event, fields in api.told if event.startswith("delivery_")]
    assert names(told) == ["delivery_redelivered", "delivery_canceled", "delivery_redelivered"]
    about = {"tenant_id": "t1", "delivery_id": waiting["delivery_id"], "message_id": waiting["message_id"]}
    for _, fields in told[:2]:
        assert about.items() <= fields.items()
        assert (fields["webhook_id"], fields["batch"], bool(fields["key_id"])) == (webhook_id, "nov", True)
    assert (told[1][1]["was"], told[1][1]["state"], told[1][1]["reason"]) == ("pending", "canceled", "by_request")
    assert (told[2][1]["job_id"], told[2][1]["was"], "batch" in told[2][1]) == ("j", "failed", False)


async def test_what_operators_pause_is_told(api):
    for body in ({"tenant_id": "t1", "reason": "fire"}, {"host": "a.example"}, {"all": True}):
        for status in (201, 200):
            assert (await api.post("/v1/operator/pauses", body)).status == status
    assert (await api.delete("/v1/operator/pauses?host=a.example")).status == 204
    assert names(api.told) == ["operator_paused"] * 3 + ["operator_pause_ended"]
    assert [fields["scope"] for _, fields in api.told] == ["tenant", "host", "all", "host"]
    assert (api.told[0][1]["tenant_id"], api.told[0][1]["reason"]) == ("t1", "fire")
    assert (api.told[3][1]["host"], bool(api.told[3][1]["key_id"])) == ("a.example", True)


async def test_what_is_refused_or_answered_again_is_not_told(api):
    body = {"id": "whk_1", "url": URL_1}
    for expected in (201, 201):
        assert (await api.post("/v1/webhooks", body, Idempotency_Key="k")).status == expected
    assert (await api.post("/v1/webhooks", body)).status == 409
    assert names(api.told) == ["webhook_registered"]


async def test_the_end_of_a_batch_is_told(api):
    webhook_id = (await api.put("/v1/batches/nov/webhook", {"url": URL_1})).json["webhook_id"]
    await api.send(api.event("job.queued", "j", "nov"), api.event("batch.deleted", "", "nov"))
    await api.send(api.event("batch.deleted", "", "nov"))  # once
    (told,) = [fields for event, fields in api.told if event == "batch_deleted"]
    assert (told["tenant_id"], told["batch"], told["webhook_id"], told["canceled"]) == ("t1", "nov", webhook_id, 0)
    assert told["batch_id"]
