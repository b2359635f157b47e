"""Rare turns: one-shots, what does not decrypt, bounded scans, our own faults."""

from datetime import timedelta

import pytest

from service.api.calls import Call, Caller
from service.api.cursors import read_number, write_number
from service.api.limits import MAX_BUCKETS, RateLimiter
from service.api.parts import ApiLimits
from service.api.problems import Problem
from service.store import delivery_views
from tests.support.api import URL_1, URL_2, running_api

ONE_SHOT = "http://127.0.0.1:9/one"
HOOK = "/v1/batches/nov/webhook"


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def test_one_shots_are_listed_paused_and_otherwise_left_alone(api):
    await api.send(api.event("job.completed", "j1", status="succeeded", webhook_url=ONE_SHOT))
    (hook,) = (await api.get("/v1/webhooks?kind=one_shot")).json["data"]
    path = f"/v1/webhooks/{hook['webhook_id']}"
    assert (await api.post(path + "/pause")).json["state"] == "paused"
    assert (await api.post(path + "/enable")).json["state"] == "enabled"
    assert (await api.post(path + "/rotate-secret")).code == "no_own_secret"
    assert (await api.post(path + "/test")).code == "one_shot"
    assert (await api.delete(path)).code == "not_an_account_webhook"
    replay = {"since": "2000-01-01T00:00:00Z", "which": "missing"}
    assert (await api.post(path + "/replay", replay)).status == 202


async def test_equal_one_shot_urls_of_a_tenant_share_one_hidden_webhook(api):
    for job, url in (("j1", ONE_SHOT), ("j2", ONE_SHOT), ("j3", ONE_SHOT + "x")):
        await api.send(api.event("job.completed", job, status="succeeded", webhook_url=url))
    other = api.as_tenant("t2")
    await other.send(other.event("job.completed", "j1", status="succeeded", webhook_url=ONE_SHOT))
    by_job = {each["job_id"]: each["webhook_id"] for each in await api.deliveries()}
    (theirs,) = await other.deliveries()
    assert by_job["j1"] == by_job["j2"] != by_job["j3"]
    assert theirs["webhook_id"] not in by_job.values()
    assert len((await api.get("/v1/webhooks?kind=one_shot")).json["data"]) == 2
    await api.send(api.event("job.completed", "j1", status="succeeded", generation=2, webhook_url=ONE_SHOT))
    states = {(each["job_id"], each["generation"]): each["state"] for each in await api.deliveries()}
    assert states == {("j1", 1): "superseded", ("j1", 2): "held", ("j2", 1): "held", ("j3", 1): "held"}


@pytest.mark.parametrize("url", ["https://[secret", "https://u:secret@r.example/", "secret"])
async def test_a_one_shot_url_that_is_none_is_listed_without_its_secrets(api, url):
    await api.send(api.event("job.completed", "j1", status="succeeded", webhook_url=url))
    reply = await api.get("/v1/webhooks?kind=one_shot")
    assert (reply.status, len(reply.json["data"])) == (200, 1)
    assert b"secret" not in reply.raw


async def test_enabling_an_enabled_webhook_ends_its_rest_and_frees_what_a_fault_held(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.connection.execute(
        "INSERT INTO webhook_health (webhook_key, held_until) SELECT webhook_key, now() FROM webhooks"
    )
    await api.connection.execute(
        "UPDATE deliveries SET state = 2, reason = 'internal_error', due_at = NULL, held_at = now()"
    )
    (delivery,) = await api.deliveries()
    path = f"/v1/deliveries/{delivery['delivery_id']}/redeliver"
    assert (await api.post(path)).json["state"] == "pending"
    assert await api.value("SELECT resume_state FROM deliveries") is None
    await api.connection.execute(
        "UPDATE deliveries SET state = 2, reason = 'internal_error', due_at = NULL, held_at = now()"
    )
    assert (await api.post(HOOK + "/enable")).json["held_until"] is None
    assert (await api.deliveries())[0]["state"] == "pending"


async def test_what_does_not_decrypt(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w", "signing": "ed25519"}, Idempotency_Key="k")
    await api.post("/v1/signing-keys/rotate")
    await api.connection.execute("UPDATE webhooks SET secrets = 'x'")
    shown = await api.get("/v1/signing-keys")
    assert shown.json["data"] == [{"webhook_id": "w", "public_keys": []}]
    rotated = await api.post("/v1/webhooks/w/rotate-secret")
    assert rotated.status == 200 and rotated.json["public_key"].startswith("whpk_")
    await api.connection.execute(
        "UPDATE webhooks SET url = 'x'; UPDATE tenants SET signing_secrets = 'x'; UPDATE idempotency SET answer = 'x'"
    )
    assert (await api.get("/v1/signing-keys")).code == "undecryptable"
    assert (await api.post("/v1/signing-keys/rotate")).code == "undecryptable"
    assert (
        await api.post("/v1/webhooks", {"url": URL_1, "id": "w", "signing": "ed25519"}, Idempotency_Key="k")
    ).code == "id_taken"
    assert (await api.post("/v1/webhooks/w/revoke-previous-secret")).status == 204


async def test_a_rotation_to_a_live_secret_is_409_and_a_patch_may_repeat_it(api):
    made = (await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})).json
    again = await api.post("/v1/webhooks/w/rotate-secret", {"secret": made["secret"]})
    assert (again.status, again.code) == (409, "secret_in_use")
    assert (await api.call("PATCH", "/v1/webhooks/w", {"secret": made["secret"]})).status == 200
    other = {"secret": "whsec_" + "QUJD" * 10}
    assert (await api.call("PATCH", "/v1/webhooks/w", other)).code == "secret_not_live"
    assert (await api.call("PATCH", "/v1/webhooks/w", {"url": None})).code == "url_missing"


async def test_long_scans_are_cut_into_short_pages(api, monkeypatch):
    monkeypatch.setattr(delivery_views, "SCAN", 4)
    monkeypatch.setattr(delivery_views, "ROUNDS", 1)
    await api.post("/v1/webhooks", {"url": URL_1, "id": "all", "event_types": ["*"]})
    for name in ("b1", "b2", "b3"):
        await api.finish(name, f"job-{name}")
    await api.conclude(5, "exhausted", "delivery_id = (SELECT min(delivery_id) FROM deliveries)")
    seen, cursor, pages = [], "", 0
    while cursor is not None:
        page = (await api.get("/v1/deliveries?state=pending&limit=3" + (f"&cursor={cursor}" if cursor else ""))).json
        seen, cursor, pages = seen + page["data"], page["next_cursor"], pages + 1
    assert (len(seen), len({d["delivery_id"] for d in seen})) == (5, 5) and pages >= 2
    for table in ("deliveries", "deliveries_done"):
        await api.connection.execute(f"UPDATE {table} SET created_at = now() - interval '1 day'")
    page = (await api.get(f"/v1/deliveries?since={api.clock.now():%Y-%m-%dT%H:%M:%SZ}")).json
    assert (page["data"], page["next_cursor"]) == ([], None)


async def test_tenants_see_unreachable_names_in_stats_too(api):
    made = (await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})).json
    await api.connection.execute(
        """INSERT INTO attempt_rollups SELECT webhook_key, now(), o, 2, 20, array_fill(0, ARRAY[13])
        FROM webhooks, unnest(ARRAY['dns_error', 'blocked_address', 'delivered']) AS o"""
    )
    reader = api.as_key(await api.make_key("read"))
    path = f"/v1/webhooks/{made['webhook_id']}/stats"
    assert (await reader.get(path)).json["last_hour"]["outcomes"] == {"unreachable_name": 4, "delivered": 2}
    assert (await api.get(path)).json["last_hour"]["outcomes"]["dns_error"] == 2
    assert (await api.as_tenant("t2").get(path)).status == 404
    assert (await api.get("/v1/webhooks/%00/stats")).status == 404


async def test_operators_pause_tenants_and_everything(api):
    assert (await api.post("/v1/operator/pauses", {"tenant": "t1"})).json["tenant_id"] == "t1"
    assert (await api.post("/v1/operator/pauses", {"all": True})).json["scope"] == "all"
    assert (await api.call("DELETE", "/v1/operator/pauses", {"tenant_id": "t1"})).status == 204
    assert (await api.delete("/v1/operator/pauses?all=true")).status == 204
    assert (await api.get("/v1/operator/pauses")).json["data"] == []


async def test_our_own_fault_is_500_without_details(api, monkeypatch):
    from service.api import jobs

    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr(jobs.batches, "list_batches", broken)
    reply = await api.get("/v1/batches")
    assert (reply.status, reply.code) == (500, "internal_error") and b"secret detail" not in reply.raw


async def test_a_busy_database_is_503(api, monkeypatch):
    from service.ports import Conflict
    from service.store import registrations

    async def busy(*_):
        raise Conflict("again")

    monkeypatch.setattr(registrations, "create_webhook", busy)
    reply = await api.post("/v1/webhooks", {"url": URL_1})
    assert (reply.status, reply.code) == (503, "busy")


async def test_renotify_of_a_body_that_is_gone(api):
    await api.put(HOOK, {"url": URL_1})
    await api.finish("nov")
    await api.conclude()
    await api.connection.execute("DELETE FROM message_bodies")
    assert (await api.post("/v1/batches/nov/renotify", {"new_id": True})).code == "body_gone"
    (delivery,) = await api.deliveries()
    assert (await api.post(f"/v1/deliveries/{delivery['delivery_id']}/redeliver", {"force": True})).code == "body_gone"
    await api.connection.execute("UPDATE messages SET expunged_at = now()")
    await api.delete(HOOK)
    await api.connection.execute("DELETE FROM batch_delivered")
    assert (await api.put(HOOK, {"url": URL_2})).json["delivery_queued"] is False
    assert (await api.delete("/v1/batches/none/webhook")).status == 404
    assert (await api.post("/v1/batches/none/webhook/pause")).status == 404


async def test_events_need_the_ingest_role_of_the_process(database):
    async with running_api(database, events=False) as api:
        reply = await api.post("/v1/events", [{}])
        assert (reply.status, reply.code) == (503, "no_ingest")
        foreign = await api.call("POST", "/v1/events", data=b"x", Content_Type="application/json", ce_id="x")
        assert foreign.status == 503


def test_buckets_are_bounded_and_refill():
    limiter = RateLimiter()
    for number in range(MAX_BUCKETS + 10):
        assert limiter.take((str(number),), 1, 0.0) == 0.0
    assert len(limiter._buckets) <= MAX_BUCKETS
    assert limiter.take(("a",), 60, 100.0) == 0.0
    with pytest.raises(Problem):
        [limiter.check(("b",), 1, 100.0) for _ in range(2)]


def test_cursors_are_those_of_one_list():
    assert read_number("jobs", write_number("jobs", 7)) == 7
    for cursor in (write_number("other", 7), write_number("jobs", 2**63), write_number("jobs", -1)):
        with pytest.raises(Problem):
            read_number("jobs", cursor)


def test_a_call_without_a_connection_says_so():
    call = Call(None, Caller("k", None, frozenset()), {}, None, None, b"", None)
    with pytest.raises(RuntimeError):
        _ = call.session


async def test_a_database_that_hangs_is_told_in_time_and_what_was_given_up_is_not_done_later(database):
    in_a_moment = ApiLimits(reads=1_000, writes=1_000, answer_within=timedelta(seconds=0.5))
    async with running_api(database, limits=in_a_moment) as api:
        async with api.connection.transaction():
            await api.connection.execute("LOCK TABLE webhooks")
            for reply in (await api.get("/v1/webhooks"), await api.put(HOOK, {"url": URL_1})):
                assert (reply.status, reply.code) == (503, "database_unavailable")
                assert int(reply.headers["Retry-After"]) > 0
        assert (await api.get(HOOK)).status == 404
        assert (await api.put(HOOK, {"url": URL_1})).status == 201
        assert (await api.get("/v1/webhooks?kind=batch")).json["data"]
