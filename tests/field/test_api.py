"""Field cases that the admin API answers for."""

import asyncio
import json
from datetime import timedelta

import pytest

from service.domain.health import Health
from service.ingest.bodies import encode_json
from service.store.operational import OperationalStore
from service.upkeep.operational import OperationalNews
from tests.support.api import SEALER, URL_1, running_api
from tests.support.delivering import Queue, deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive

HOOK = "/v1/batches/nov/webhook"
GONE = b"HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n"
FAIL = b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X-A", "a\r\nX-B: b"),
        ("X-A", "a\nb"),
        ("X-A", "a\0b"),
        ("X-A", "a\x7fb"),
        ("X-A", 7),
        ("X-A", {"nested": "object"}),
        ("X-A", None),
        ("X-A", " padded"),
        ("X A", "a"),
        ("X:A", "a"),
        ("X-Ä", "a"),
        ("", "a"),
        ("X-A\r\nX-B", "a"),
    ],
)
async def test_f14_crlf_in_custom_headers(api, name, value):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})
    for method, path in (("PUT", HOOK), ("POST", "/v1/webhooks"), ("PATCH", "/v1/webhooks/w")):
        if method == "PATCH" and value is None:
            continue  # takes a header away
        reply = await api.call(method, path, {"url": URL_1, "custom_headers": {name: value}})
        assert reply.status == 422
        (error,) = reply.json["errors"]
        assert (error["field"] == "custom_headers" and repr(name) in error["detail"]) or not name
    assert (await api.get("/v1/webhooks/w")).json["custom_header_names"] == []
    assert await api.value("SELECT count(*) FROM webhooks") == 1


@pytest.mark.parametrize(
    "secret",
    [
        "whsec_!!!!",
        "whsec_",
        "v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_-_KQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwQQ",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS=",
        "whsec_" + "QUJD" * 22,
        "whsec_ MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ],
)
async def test_f46_secret_bytes(api, secret):
    await api.put(HOOK, {"url": URL_1})
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})
    kept = await api.fetch("SELECT secrets FROM webhooks ORDER BY webhook_key")
    for method, path, more in (
        ("PUT", HOOK, {"url": URL_1}),
        ("POST", "/v1/webhooks", {"url": URL_1}),
        ("PATCH", "/v1/webhooks/w", {}),
        ("POST", HOOK + "/rotate-secret", {}),
        ("POST", "/v1/webhooks/w/rotate-secret", {}),
        ("POST", "/v1/signing-keys/rotate", {}),
    ):
        reply = await api.call(method, path, {**more, "secret": secret})
        (error,) = reply.json["errors"]
        assert reply.status == 422 and error["field"] == "secret" and "secret" in error["detail"]
        assert secret.removeprefix("whsec_") not in reply.raw.decode() or len(secret) < 8
    assert await api.fetch("SELECT secrets FROM webhooks ORDER BY webhook_key") == kept


async def test_f46_the_canonical_form_is_returned_once(api):
    given = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    made = await api.put(HOOK, {"url": URL_1, "secret": given})
    assert made.json["secret"] == given
    for reply in (await api.get(HOOK), await api.put(HOOK, {"url": URL_1, "secret": given})):
        assert given not in reply.raw.decode()


async def test_f57_a_deleted_webhook_gets_nothing_more(api, database):
    release, asked = asyncio.Event(), []

    async def slow(visit):
        while True:
            asked.append(await visit.request())
            await release.wait()
            await visit.say(NO_CONTENT)

    async with receive(slow) as receiver, Queue(database) as queue, deliver(database, sealer=SEALER) as role:
        await api.post("/v1/webhooks", {"url": receiver.url(), "id": "w"})
        key = await api.value("SELECT webhook_key FROM webhooks")
        await queue.deliveries(key, 100)
        await until(lambda: asked, "the first POST")
        await queue.wait("deliveries", "lease_token IS NOT NULL")
        assert (await api.delete("/v1/webhooks/w")).status == 204
        waiting = await api.value("SELECT count(*) FROM deliveries WHERE lease_token IS NULL")
        assert (waiting, await api.value("SELECT count(*) FROM deliveries WHERE flag <> 2")) == (0, 0)
        await until(lambda: role.parts.catalog.find(key).revision > 1, "the worker's knowledge")
        on_wire = len(asked)
        release.set()
        await queue.wait("deliveries_done", "true", count=100)
    rows = await api.fetch("SELECT state, reason, count(*) AS n FROM deliveries_done GROUP BY 1, 2 ORDER BY 1")
    counts = {(row["state"], row["reason"]): row["n"] for row in rows}
    assert counts == {(4, None): len(asked), (7, "webhook_deleted"): 100 - len(asked)}
    assert len(asked) == on_wire


@pytest.mark.parametrize(
    ("answer", "reason", "error"), [(GONE, "gone", "gone 410"), (FAIL, "failing", "http_error 500")]
)
async def test_f58_a_disabled_webhook_says_why_and_since_when(api, database, answer, reason, error):
    async with (
        receive(answering(answer)) as receiver,
        receive(answering(NO_CONTENT)) as owner,
        Queue(database) as queue,
        deliver(database, sealer=SEALER) as role,
    ):
        await api.post("/v1/webhooks", {"id": "owner", "url": owner.url(), "event_types": ["webhook.disabled"]})
        made = (await api.put(HOOK, {"url": receiver.url()})).json
        if reason == "failing":
            key = await api.value("SELECT webhook_key FROM webhooks WHERE webhook_id = $1", made["webhook_id"])
            began = await queue.now() - timedelta(days=6)
            await queue.store_health(key, Health(began, failures=20, window=5, failed_windows=3))
        await api.finish("nov")
        await until(lambda: role.watcher.disabled, "the disable")
        await until(lambda: "webhook_disabled" in dict(role.watcher.events), "the line of the log")
        await OperationalNews(OperationalStore(api.database, encode_json), "subscribers").run_once()
        await until(lambda: owner.requests, "the owner's message")
    line, told = dict(role.watcher.events)["webhook_disabled"], json.loads(owner.requests[0].body)
    assert (line["webhook_id"], line["tenant_id"], line["reason"]) == (made["webhook_id"], "t1", reason)
    assert (told["type"], told["data"]["webhook_id"], told["data"]["reason"]) == (
        "webhook.disabled", made["webhook_id"], reason,
    )  # fmt: skip
    shown = (await api.get(HOOK)).json
    assert (shown["state"], shown["reason"], shown["last_error"]) == ("disabled", reason, error)
    assert shown["state_detail"] and shown["state_at"] == told["data"]["at"]
    held = [delivery for delivery in await api.deliveries() if delivery["batch"] == "nov"]
    assert [(delivery["state"], delivery["reason"]) for delivery in held] == [("held", "disabled")]


async def test_f60_states_of_one_id_in_two_tenants_are_apart(api):
    for tenant in ("t1", "t2"):
        assert (await api.as_tenant(tenant).post("/v1/webhooks", {"url": URL_1, "id": "same"})).status == 201
    await api.post("/v1/webhooks/same/pause")
    assert (await api.get("/v1/webhooks/same")).json["state"] == "paused"
    assert (await api.as_tenant("t2").get("/v1/webhooks/same")).json["state"] == "enabled"


async def test_f67_every_url_valued_setting_goes_through_the_guard(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})
    inside = "http://169.254.169.254/latest/meta-data"
    for method, path in (("PUT", HOOK), ("POST", "/v1/webhooks"), ("PATCH", "/v1/webhooks/w")):
        reply = await api.call(method, path, {"url": inside})
        assert (reply.status, reply.code) == (422, "url_metadata_address")


async def test_f69_no_oracle(api, database):
    """Names that do not exist and names of closed addresses look the same to a tenant, and no answer is shown."""
    writer = api.as_key(await api.make_key("write"))
    page = answering(b"HTTP/1.1 500 x\r\nContent-Length: 6\r\n\r\nsecret")
    async with receive(page) as receiver, deliver(database, sealer=SEALER):
        await writer.post("/v1/webhooks", {"url": "http://nowhere.example/", "id": "a"})
        await writer.post("/v1/webhooks", {"url": receiver.url(), "id": "b"})
        blocked = await writer.post("/v1/webhooks/a/test")
        answered = await writer.post("/v1/webhooks/b/test")
    assert {**blocked.json, "delivery_id": ""} == {
        "delivery_id": "", "state": "failed", "status": None, "class": "unreachable_name", "latency_ms": None,
    }  # fmt: skip
    assert answered.json["status"] == 500 and b"secret" not in answered.raw
    shown = (await writer.get(f"/v1/deliveries/{blocked.json['delivery_id']}")).json
    text = json.dumps(shown)
    assert "dns_error" not in text and "blocked" not in text
    assert shown["attempts"][0]["duration_ms"] is None


async def test_f69_whatever_a_tenant_reads_of_a_closed_address_it_reads_of_a_name_that_does_not_exist(api, database):
    writer = api.as_key(await api.make_key("write"))
    async with Queue(database) as queue, deliver(database, sealer=SEALER):
        for url in ("http://nowhere.example/", "http://10.0.0.1/"):
            await queue.deliveries(await queue.webhook(url))
        await queue.wait("webhook_health", "last_error IS NOT NULL", count=2)
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL", count=2)
    deliveries = [f"/v1/deliveries/{delivery['delivery_id']}" for delivery in await api.deliveries()]
    hooks = [f"/v1/webhooks/{row['webhook_id']}" for row in await api.fetch("SELECT webhook_id FROM webhooks")]
    told = [await writer.get(path) for path in ("/v1/webhooks", "/v1/deliveries", *hooks, *deliveries)]
    told += [await writer.post(f"{path}/{call}") for call in ("redeliver", "cancel") for path in deliveries]
    for reply in told:
        assert reply.status in {200, 202}
        assert b"unreachable_name" in reply.raw
        assert not any(word in reply.raw for word in (b"dns", b"nxdomain", b"blocked", b"private"))


async def test_f72_duplicates_and_transient_failures(api):
    same = {"url": URL_1, "id": "one"}
    first, second = await asyncio.gather(api.post("/v1/webhooks", same), api.post("/v1/webhooks", same))
    assert sorted((first.status, second.status)) == [201, 409]
    puts = await asyncio.gather(*(api.put(HOOK, {"url": URL_1}) for _ in range(4)))
    assert sorted(reply.status for reply in puts) == [200, 200, 200, 201]
    keys = [await api.make_key("write", "ingest"), await api.make_key("operator", tenant=None)]
    await api.parts.database.__aexit__(None, None, None)
    for caller in (api, *(api.as_key(key, "t1") for key in keys)):
        for method, path, body in (
            ("GET", "/v1/batches", None),
            ("PUT", HOOK, {"url": URL_1}),
            ("POST", "/v1/webhooks", same),
            ("PATCH", "/v1/webhooks/one", {"description": "x"}),
            ("DELETE", "/v1/webhooks/one", None),
            ("POST", "/v1/webhooks/one/test", None),
            ("POST", "/v1/deliveries/dlv_1/redeliver", None),
            ("POST", "/v1/events", [api.event("job.completed", "j1", status="succeeded")]),
        ):
            away = await caller.call(method, path, body)
            assert (away.status, away.code) == (503, "database_unavailable") and away.headers["Retry-After"], path
