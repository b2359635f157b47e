"""Account webhooks, signing keys, tests, events, operator calls."""

import asyncio
import base64
import json

import pytest

from service.domain.profiles import LINK_FIELDS
from service.domain.webhooks import Scope
from service.store import webhooks
from tests.support.api import SEALER, URL_1, URL_2, running_api
from tests.support.delivering import deliver
from tests.support.receivers import NO_CONTENT, answering, receive


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def make(api, **more):
    reply = await api.post("/v1/webhooks", {"url": URL_1, **more})
    assert reply.status == 201, reply.raw
    return reply.json


async def test_create_get_patch_delete(api):
    made = await make(api, id="mine/1", event_types=["extraction.*"], scopes=["job"], batch_names="nov-*")
    assert made["secret"].startswith("whsec_") and made["webhook_id"] == "mine/1"
    shown = await api.get("/v1/webhooks/mine%2F1")
    assert shown.json["secret"] is None
    assert (shown.json["event_types"], shown.json["batch_names"]) == (["extraction.*"], ["nov-*"])
    assert shown.headers["ETag"] == '"1"'
    stale = await api.call("PATCH", "/v1/webhooks/mine%2F1", {"description": "x"}, If_Match='"7"')
    assert (stale.status, stale.code) == (412, "revision_mismatch")
    patched = await api.call(
        "PATCH", "/v1/webhooks/mine%2F1", {"description": "x", "batch_names": None, "rate_limit": 5}, If_Match='"1"'
    )
    assert (patched.status, patched.json["batch_names"], patched.json["rate_limit"]) == (200, [], 5)
    assert patched.json["event_types"] == ["extraction.*"]
    same = await api.call("PATCH", "/v1/webhooks/mine%2F1", {"rate_limit": 5})
    assert same.json["revision"] == patched.json["revision"] == 2
    assert (await api.post("/v1/webhooks", {"url": URL_1, "id": "mine/1"})).code == "id_taken"
    assert (await api.delete("/v1/webhooks/mine%2F1")).status == 204
    assert (await api.get("/v1/webhooks/mine%2F1")).status == 404
    assert (await make(api, id="mine/1"))["revision"] == 1


@pytest.mark.parametrize(
    ("patch", "left"),
    [
        ({"X-B": "2"}, {"X-Api-Key": "k", "X-A": "1", "X-B": "2"}),
        ({"X-A": None}, {"X-Api-Key": "k"}),
        ({"x-a": "2"}, {"X-Api-Key": "k", "x-a": "2"}),
        ({"x-a": None, "X-B": "2"}, {"X-Api-Key": "k", "X-B": "2"}),
        ({"x-a": "2", "X-A": None}, {"X-Api-Key": "k", "x-a": "2"}),
        ({"not there": None}, {"X-Api-Key": "k", "X-A": "1"}),
        ({}, {"X-Api-Key": "k", "X-A": "1"}),
        (None, {}),
    ],
)
async def test_a_patch_is_merged_into_the_headers_that_nobody_can_read_back(api, patch, left):
    await make(api, id="w", custom_headers={"X-Api-Key": "k", "X-A": "1"})
    patched = await api.call("PATCH", "/v1/webhooks/w", {"custom_headers": patch})
    assert patched.status == 200, patched.raw
    assert sorted(patched.json["custom_header_names"]) == sorted(left)
    async with api.database.session() as session:
        stored = await webhooks.find_webhook(session, api.parts.registry, "t1", "w")
    assert dict(stored.settings.custom_headers) == left


async def test_a_patch_keeps_the_bounds_of_headers(api):
    await make(api, id="w", custom_headers={f"x-{number}": "v" for number in range(20)})
    more = await api.call("PATCH", "/v1/webhooks/w", {"custom_headers": {"x-more": "v"}})
    assert (more.status, more.code) == (422, "invalid_request")
    every = {f"x-{number}": None for number in range(20)} | {f"y-{number}": "v" for number in range(20)}
    swapped = await api.call("PATCH", "/v1/webhooks/w", {"custom_headers": every})
    assert (swapped.status, len(swapped.json["custom_header_names"])) == (200, 20)


async def test_subscribers_get_messages_and_a_url_change_sends_the_newest_failed(api):
    hook = await make(api, event_types=["*"], scopes=["batch"])
    await api.finish("nov", "a")
    (delivery,) = await api.deliveries()
    assert delivery["webhook_id"] == hook["webhook_id"]
    await api.conclude(5, "exhausted")
    path = f"/v1/webhooks/{hook['webhook_id']}"
    await api.call("PATCH", path, {"description": "no new URL"})
    assert (await api.deliveries())[0]["state"] == "failed"
    await api.call("PATCH", path, {"url": URL_2})
    assert (await api.deliveries())[0]["state"] == "pending"


async def test_only_account_webhooks_are_changed_by_id(api):
    made = (await api.put("/v1/batches/nov/webhook", {"url": URL_1})).json
    path = f"/v1/webhooks/{made['webhook_id']}"
    assert (await api.get(path)).json["kind"] == "batch"
    assert (await api.delete(path)).code == "not_an_account_webhook"
    assert (await api.call("PATCH", path, {"description": "x"})).status == 409
    assert (await api.post(path + "/pause")).json["state"] == "paused"


async def test_lists_page_newest_first_and_stay_put_under_inserts(api):
    made = [(await make(api, id=f"w{n}"))["webhook_id"] for n in range(5)]
    await api.put("/v1/batches/nov/webhook", {"url": URL_2})
    first = (await api.get("/v1/webhooks?limit=2&kind=account")).json
    await make(api, id="later")
    seen = [w["webhook_id"] for w in first["data"]]
    cursor = first["next_cursor"]
    while cursor:
        page = (await api.get(f"/v1/webhooks?limit=2&kind=account&cursor={cursor}")).json
        seen += [w["webhook_id"] for w in page["data"]]
        cursor = page["next_cursor"]
    assert seen == made[::-1]
    everything = (await api.get("/v1/webhooks")).json["data"]
    assert [w["kind"] for w in everything] == ["account", "batch", *["account"] * 5]


async def test_urls_are_masked_unless_a_write_key_asks(api):
    await make(api, id="w", url=URL_2)
    assert (await api.get("/v1/webhooks")).json["data"][0]["url"] == "https://other.example/hook?***"
    assert (await api.get("/v1/webhooks/w?reveal=url")).json["url"] == URL_2
    reader = api.as_key(await api.make_key("read"))
    assert (await reader.get("/v1/webhooks?reveal=url")).status == 403


async def test_too_many_webhooks(database):
    async with running_api(database, max_webhooks_per_tenant=2) as api:
        await make(api)
        await make(api)
        assert (await api.post("/v1/webhooks", {"url": URL_1})).code == "too_many_webhooks"
        assert (await api.as_tenant("t2").post("/v1/webhooks", {"url": URL_1})).status == 201


async def test_a_webhook_that_does_not_decrypt_is_shown_and_can_be_given_a_new_secret(api):
    await make(api, id="w")
    await api.connection.execute("UPDATE webhooks SET url = 'x', secrets = 'y'")
    shown = await api.get("/v1/webhooks/w")
    assert (shown.status, shown.json["url"]) == (200, None)
    patched = await api.call("PATCH", "/v1/webhooks/w", {"url": URL_1})
    assert patched.status == 200 and patched.json["secret"].startswith("whsec_")
    assert (await api.get("/v1/webhooks/w")).json["url"] == URL_1


async def test_signing_keys(api):
    empty = (await api.get("/v1/signing-keys")).json
    assert empty["default_secret"]["created_at"] is None and empty["data"] == []
    await make(api, id="pair", signing="ed25519")
    one_shot = api.event("job.completed", "j1", status="succeeded", webhook_url="http://127.0.0.1:9/one")
    await api.send(one_shot)
    (held,) = await api.deliveries()
    assert (held["state"], held["reason"]) == ("held", "no_signing_key")
    rotated = (await api.post("/v1/signing-keys/rotate")).json
    assert rotated["secret"].startswith("whsec_") and rotated["previous_valid_until"] is None
    assert (await api.deliveries())[0]["state"] == "pending"
    again = await api.post("/v1/signing-keys/rotate", {"overlap_seconds": 60})
    assert again.json["previous_valid_until"] is not None
    shown = (await api.get("/v1/signing-keys")).json
    assert shown["default_secret"]["live"] == 2
    assert shown["data"][0]["webhook_id"] == "pair" and shown["data"][0]["public_keys"][0].startswith("whpk_")


async def test_test_sends_go_through_the_ordinary_lanes_and_ignore_a_pause(api, database):
    async with receive(answering(NO_CONTENT)) as receiver, deliver(database, sealer=SEALER):
        hook = await make(api, url=receiver.url())
        path = f"/v1/webhooks/{hook['webhook_id']}"
        await api.post(path + "/pause")
        reply = await api.post(path + "/test")
        assert reply.status == 200, reply.raw
        assert (reply.json["state"], reply.json["status"], reply.json["class"]) == ("delivered", 204, "delivered")
        assert reply.json["latency_ms"] % 100 == 0
        (request,) = receiver.requests
    body = json.loads(request.body)
    assert body["type"] == "webhook.test" and body["test"] is True
    assert await api.value("SELECT count(*) FROM audit_log WHERE action LIKE '%test%'") == 0


async def test_unreachable_names_look_alike_to_tenants(api, database):
    async with deliver(database, sealer=SEALER):
        hook = await make(api, url="http://nowhere.example/")
        path = f"/v1/webhooks/{hook['webhook_id']}/test"
        operators = (await api.post(path)).json
        tenants = (await api.as_key(await api.make_key("write")).post(path)).json
    assert operators["class"] in ("dns_error", "blocked_address")
    assert (tenants["class"], tenants["latency_ms"], tenants["status"]) == ("unreachable_name", None, None)


async def test_why_a_name_is_unreachable_only_operators_are_told(api):
    hook = await make(api, url="http://nowhere.example/", signing="hmac")
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.fetch(
        "INSERT INTO webhook_health (webhook_key, last_error) SELECT webhook_key, 'dns_error nxdomain' FROM webhooks"
    )
    tenant = api.as_key(await api.make_key("write"))
    path = f"/v1/webhooks/{hook['webhook_id']}"
    for caller, told in ((api, "dns_error nxdomain"), (tenant, "unreachable_name")):
        shown = [(await caller.get(path)).json, (await caller.get("/v1/batches/nov/webhook")).json]
        shown += (await caller.get("/v1/webhooks")).json["data"]
        shown += [
            (await caller.call("PATCH", path, {"description": told})).json,
            (await caller.post(f"{path}/pause")).json,
        ]
        shown.append((await caller.put("/v1/batches/nov/webhook", {"url": URL_1, "description": told})).json)
        assert [each["last_error"] for each in shown] == [told] * 7
    assert "last_error" not in str(await api.fetch("SELECT before, after FROM audit_log"))


async def test_events_in_every_form(api):
    event = api.event("job.queued", "j1", "nov")
    single = await api.post("/v1/events", event)
    assert (single.status, single.json["results"][0]["outcome"]) == (202, "applied")
    foreign = await api.post(
        "/v1/events", [event | {"tenant_id": "t2"}, {"nonsense": True}, api.event("job.queued", "j2")]
    )
    assert [result["outcome"] for result in foreign.json["results"]] == ["rejected", "rejected", "applied"]
    attributes = {"id": "ce-1", "source": "native", "type": "job.queued", "time": event["occurred_at"]}
    data = {"tenant_id": "t1", "job_id": "j3"}
    structured = json.dumps({"specversion": "1.0", **attributes, "data": data}).encode()
    for content, kind in (
        (structured, "application/cloudevents+json"),
        (b"[" + structured + b"]", "application/cloudevents-batch+json"),
    ):
        reply = await api.call("POST", "/v1/events", data=content, Content_Type=kind)
        assert reply.status == 202 and reply.json["results"][0]["outcome"] in ("applied", "duplicate"), reply.raw
    headers = {f"ce-{name}": value for name, value in attributes.items()} | {"ce-specversion": "1.0"}
    reply = await api.call("POST", "/v1/events", data | {"job_id": "j4"}, **headers)
    assert reply.json["results"][0]["outcome"] == "applied", reply.raw
    assert (await api.get("/v1/jobs/j4")).json["status"] == "queued"


async def test_an_event_older_than_the_state_is_kept_is_named_like_any_other(api):
    old = api.event("job.queued", "j1") | {"occurred_at": "2020-01-01T00:00:00Z"}
    expired, foreign = await api.send(old, old | {"event_id": "evt_foreign", "tenant_id": "t2"})
    assert (expired["event_id"], expired["outcome"]) == (old["event_id"], "expired")
    assert (foreign["event_id"], foreign["outcome"], foreign["reason"]) == ("evt_foreign", "rejected", "foreign_tenant")
    assert (await api.get("/v1/jobs/j1")).status == 404


async def test_a_refused_event_is_named_if_its_id_can_be_read(api):
    good = api.event("job.completed", "j1", status="succeeded")
    bad = [
        good | {"event_id": "evt_type", "event_type": "job.paused"},
        good | {"event_id": "evt_status", "status": "unheard of"},
        good | {"event_id": "evt_time", "occurred_at": "yesterday"},
        good | {"event_id": "x" * 256},
        good | {"event_id": 5},
        good | {"event_id": "evt_nul", "kind": "\0"},
        {},
        7,
    ]
    results = (await api.post("/v1/events", bad)).json["results"]
    assert {result["outcome"] for result in results} == {"rejected"}
    assert [result["event_id"] for result in results] == ["evt_type", "evt_status", "evt_time", *[None] * 5]
    envelope = json.dumps({"specversion": "1.0", "id": "ce-1", "source": "nowhere", "type": "job.queued", "data": {}})
    kind = "application/cloudevents+json"
    structured = await api.call("POST", "/v1/events", data=envelope.encode(), Content_Type=kind)
    binary = await api.post("/v1/events", {}, **{"ce-id": "ce-2", "ce-source": "nowhere", "ce-type": "job.queued"})
    named = [reply.json["results"][0]["event_id"] for reply in (structured, binary)]
    assert named == ["ce-1", "ce-2"]


async def test_events_have_bounds(api):
    assert (await api.post("/v1/events", [{}] * 501)).status == 422
    assert (await api.post("/v1/events", [])).status == 422
    assert (await api.call("POST", "/v1/events", data=b"", Content_Type="application/json")).status == 400
    assert (await api.call("POST", "/v1/events", data=b"[{]", Content_Type="application/json")).status == 400
    huge = b"[" + b" " * 4_194_304 + b"]"
    assert (await api.call("POST", "/v1/events", data=huge, Content_Type="application/json")).status == 413
    assert (await api.call("POST", "/v1/events", data=b"{}", Content_Type="text/plain")).status == 415


async def test_batches_and_jobs_for_those_who_poll(api):
    await api.send(
        api.event("job.queued", "a", "nov", created_at="2026-11-30T08:00:00Z"),
        api.event("job.completed", "b", "nov", status="failed", error_code="e42"),
    )
    shown = (await api.get("/v1/batches/nov")).json
    assert (shown["status"], shown["all_done"], shown["counts"]["total"]) == ("processing", False, 2)
    assert shown["oldest_unfinished_seconds"] >= 0
    job = (await api.get("/v1/jobs/b")).json
    assert (job["status"], job["error_code"], job["batch"], job["deliveries"]) == ("failed", "e42", "nov", [])
    assert (await api.get("/v1/jobs/none")).status == 404
    assert (await api.as_tenant("t2").get("/v1/jobs/b")).status == 404


async def test_the_jobs_of_a_batch_are_listed_newest_first_and_pages_stay_when_others_come(api):
    for job_id in ("b", "c", "a"):
        await api.send(api.event("job.queued", job_id, "nov"))
    jobs = (await api.get("/v1/batches/nov/jobs?limit=2")).json
    await api.send(api.event("job.queued", "aa", "nov"), api.event("job.started", "b", "nov"))
    rest = (await api.get(f"/v1/batches/nov/jobs?cursor={jobs['next_cursor']}")).json
    assert [job["job_id"] for job in jobs["data"]] == ["a", "c"]
    assert [job["job_id"] for job in rest["data"]] == ["b"] and rest["next_cursor"] is None
    assert (await api.get("/v1/batches/nov/jobs")).json["data"][0]["job_id"] == "aa"


async def test_links_are_templates_over_every_field_of_a_job_or_batch(database, tmp_path):
    fields = {scope: "/".join(f"{name}={{{name}}}" for name in sorted(LINK_FIELDS[scope])) for scope in Scope}
    status = "".join(f'{word} = "{word}"\n' for word in ("queued", "processing", "succeeded", "failed"))
    links = "".join(f'{scope.value} = "https://a.example/{fields[scope]}"\n' for scope in Scope)
    (tmp_path / "acme.toml").write_text(f'name = "acme"\n[status]\n{status}[links]\n{links}')
    words = {name: name for name in ("subject_id", "subject_status", "kind", "stage", "error_code", "previous_job_id")}
    async with running_api(database, profiles=[tmp_path]) as api:
        await make(api, event_types=["*"])
        event = api.event("job.completed", "j1", status="failed", source="acme", **words)
        await api.send(event | {"batch": {"name": "nov/1", "id": "bat_1", "total": 1}})
        bodies = [json.loads(row["body"]) for row in await api.fetch("SELECT body FROM message_bodies")]
    links_of = {body["data"]["scope"]: body["data"]["links"]["self"].split("/")[3:] for body in bodies}
    found = {scope: dict(part.split("=") for part in parts) for scope, parts in links_of.items()}
    assert set(found["job"]) == LINK_FIELDS[Scope.JOB] and found["job"].items() >= words.items()
    assert set(found["batch"]) == LINK_FIELDS[Scope.BATCH]
    assert (found["batch"]["name"], found["batch"]["id"]) == ("nov%2F1", "bat_1")


async def test_stats_come_from_roll_ups(api):
    from service.store.stats import roll_up

    hook = await make(api)
    key = await api.value("SELECT webhook_key FROM webhooks")
    await api.connection.execute(
        """INSERT INTO attempts (delivery_id, number, started_at, webhook_key, duration_ms, outcome)
        SELECT n, 1, now() - interval '5 min', $1, n, CASE WHEN n % 4 = 0 THEN 'timeout' ELSE 'delivered' END
        FROM generate_series(1, 200) AS n""",
        key,
    )
    async with api.database.transaction() as session:
        await roll_up(session)
    async with api.database.transaction() as session:
        assert not await roll_up(session)
    stats = (await api.get(f"/v1/webhooks/{hook['webhook_id']}/stats")).json
    hour = stats["last_hour"]
    assert hour["outcomes"] == {"delivered": 150, "timeout": 50} and hour["success_ratio"] == 0.75
    assert (hour["p50_ms"], hour["p99_ms"]) == (100, 250)
    assert stats["last_day"] == hour


async def test_the_longest_queues_are_told_apart_without_counting_them(api):
    for name in ("long", "longer", "short"):
        await make(api, id=name, event_types=["*"])
    await api.finish("nov", "a")
    await api.connection.execute("DELETE FROM deliveries WHERE webhook_key <> (SELECT min(webhook_key) FROM webhooks)")

    async def list_top():
        rows = (await api.get("/v1/operator/top?by=pending&limit=10")).json["data"]
        return [(row["webhook_id"], row["value"], row["capped"]) for row in rows]

    await queue_more(api, {"long": 698, "longer": 800, "short": 7})
    assert await list_top() == [("longer", 800.0, False), ("long", 700.0, False), ("short", 7.0, False)]

    await queue_more(api, {"long": 40_000, "longer": 80_000})
    await api.connection.execute("DELETE FROM pg_statistic WHERE starelid = 'deliveries'::regclass")
    first, second, *_ = await list_top()
    assert (first[0], first[2], second[0], second[2]) == ("longer", True, "long", True)
    assert first[1] == pytest.approx(80_800, rel=0.6) and second[1] == pytest.approx(40_700, rel=0.6)


async def queue_more(api, counts):
    """Let so many more deliveries wait, each like the first, those of one webhook among those of the others."""
    await api.connection.execute(
        """INSERT INTO deliveries (tenant_id, webhook_key, lane, message_id, body_at, type, scope, generation, due_at)
        SELECT d.tenant_id, w.webhook_key, w.lane, c.name || c.count || n, d.body_at, d.type, d.scope, 1, now()
        FROM (SELECT * FROM deliveries LIMIT 1) AS d, unnest($1::text[], $2::integer[]) AS c (name, count)
        JOIN webhooks AS w ON w.webhook_id = c.name
        CROSS JOIN LATERAL generate_series(1, c.count) AS n
        ORDER BY random()""",
        list(counts),
        list(counts.values()),
    )


async def test_operator_top_and_pauses(api):
    await make(api, id="w", event_types=["*"])
    await api.finish("nov", "a", "b")
    await api.connection.execute("UPDATE deliveries SET due_at = now() - interval '1 min'")
    for by in ("pending", "oldest"):
        rows = (await api.get(f"/v1/operator/top?by={by}")).json["data"]
        assert rows[0]["webhook_id"] == "w" and rows[0]["value"] >= 1, by
    await api.connection.execute("UPDATE deliveries SET lease_token = 1, lease_until = now()")
    await api.connection.execute(
        "INSERT INTO webhook_health (webhook_key, breaker) SELECT webhook_key, 1 FROM webhooks"
    )
    for by in ("slots", "failing"):
        assert (await api.get(f"/v1/operator/top?by={by}")).json["data"][0]["webhook_id"] == "w"
    assert (await api.get("/v1/operator/top?by=luck")).status == 422
    assert (await api.post("/v1/operator/pauses", {"host": "A.Example", "reason": "fire"})).status == 201
    assert (await api.post("/v1/operator/pauses", {"host": "a.example"})).status == 200
    assert (await api.post("/v1/operator/pauses", {"all": True, "host": "x"})).status == 422
    assert [p["host"] for p in (await api.get("/v1/operator/pauses")).json["data"]] == ["a.example"]
    assert (await api.delete("/v1/operator/pauses?host=a.example")).status == 204
    assert (await api.delete("/v1/operator/pauses?host=a.example")).status == 404


async def test_the_audit_log_tells_who_did_what_without_secrets(api):
    made = await make(api, id="w", url=URL_2, custom_headers={"X-Api-Key": "hidden"})
    await api.post("/v1/webhooks/w/rotate-secret")
    await api.delete("/v1/webhooks/w")
    entries = (await api.get("/v1/audit")).json["data"]
    assert [entry["action"] for entry in entries] == ["webhook_delete", "webhook_rotate_secret", "webhook_create"]
    assert entries[2]["after"]["custom_header_names"] == ["X-Api-Key"] and entries[2]["before"] is None
    text = json.dumps(entries)
    assert not [secret for secret in ("hidden", "token=secret", made["secret"]) if secret in text]
    assert (await api.as_tenant("t2").get("/v1/audit")).json["data"] == []


async def test_a_repeat_with_an_idempotency_key_gets_the_same_answer(api):
    body = {"url": URL_1}
    first = await api.post("/v1/webhooks", body, Idempotency_Key="k1")
    again = await api.post("/v1/webhooks", body, Idempotency_Key="k1")
    assert (again.status, again.json["secret"]) == (201, first.json["secret"])
    assert again.headers["Idempotent-Replayed"] == "true" and again.headers["ETag"] == first.headers["ETag"]
    other = await api.post("/v1/webhooks", {"url": URL_2}, Idempotency_Key="k1")
    assert (other.status, other.code) == (409, "idempotency_key_reused")
    assert (await api.as_tenant("t2").post("/v1/webhooks", body, Idempotency_Key="k1")).json != first.json
    assert first.json["secret"].encode() not in bytes(await api.value("SELECT answer FROM idempotency LIMIT 1"))
    api.clock.added = 86_500.0
    late = await api.post("/v1/webhooks", body, Idempotency_Key="k1")
    assert late.json["webhook_id"] != first.json["webhook_id"]
    assert (await api.post("/v1/webhooks", body, Idempotency_Key="é")).code == "bad_idempotency_key"


async def test_of_concurrent_repeats_one_is_done(api):
    replies = await asyncio.gather(*(api.post("/v1/webhooks", {"url": URL_1}, Idempotency_Key="k") for _ in range(6)))
    assert {reply.status for reply in replies} <= {201, 409}
    assert {reply.code for reply in replies if reply.status == 409} <= {"in_progress"}
    assert await api.value("SELECT count(*) FROM webhooks") == 1


async def test_ids_that_cannot_be(api):
    for path in ("/v1/webhooks/%00", "/v1/messages/%00", "/v1/deliveries/x", "/v1/deliveries/dlv_999", "/v1/keys/%00"):
        method = "DELETE" if "keys" in path else "GET"
        assert (await api.call(method, path)).status == 404, path
    token = base64.urlsafe_b64encode(b"webhooks:9999999999999999999").decode().rstrip("=")
    for cursor in ("x", "%00", "é", token, "eA", "a" * 700):
        assert (await api.get(f"/v1/webhooks?cursor={cursor}")).status in (400, 422), cursor
