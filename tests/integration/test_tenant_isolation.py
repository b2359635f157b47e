"""One tenant at every call of the API with another's names and ids: 404 or nothing, and nothing changes."""

import base64

import orjson
import pytest

from service.api.calls import Kind
from service.api.operations import OPERATIONS
from tests.support.api import URL_1, URL_2, running_api

MARK = "belongs-to-victim"
BODIES = {
    "batch_webhook_put": {"url": URL_1},
    "webhook_post": {"url": URL_1},
    "webhook_patch": {"description": "mine now"},
    "replay_start": {"since": "2000-01-01T00:00:00Z", "which": "all"},
}
OF_TENANTS = [op for op in OPERATIONS if "{" in op.path and op.tenant and op.kind is not Kind.OPEN]
LISTS = [op for op in OPERATIONS if "{" not in op.path and op.tenant and op.method == "GET" and op.kind is Kind.READ]
TABLES = ("webhooks", "deliveries", "messages", "jobs", "batches", "replays", "tenants")


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


@pytest.fixture
async def names(api):
    """What the victim has, by the names that paths give it."""
    hook = {"url": f"https://{MARK}.example/", "event_types": ["*"], "description": MARK}
    await api.post("/v1/webhooks", {**hook, "id": MARK})
    await api.post("/v1/signing-keys/rotate")
    await api.finish(MARK, f"{MARK}-job")
    await api.put(f"/v1/batches/{MARK}/webhook", {"url": f"https://{MARK}.example/batch"})
    replay = {"since": "2000-01-01T00:00:00Z", "which": "missing"}
    replayed = await api.post(f"/v1/webhooks/{MARK}/replay", replay)
    assert replayed.status == 202, replayed.raw
    delivery = (await api.deliveries())[0]
    return {
        "batch_name": MARK,
        "job_id": f"{MARK}-job",
        "webhook_id": MARK,
        "delivery_id": delivery["delivery_id"],
        "message_id": delivery["message_id"],
        "replay_id": replayed.json["replay"]["replay_id"],
    }


@pytest.fixture
async def attacker(api):
    return api.as_key(await api.make_key("read", "write", "ingest", tenant="attacker"))


async def read_victim(api) -> dict[str, list[str]]:
    """Every row of the victim's, but for when it was last looked at."""
    rows = {}
    for table in TABLES:
        found = await api.fetch(f"SELECT to_jsonb(t)::text AS row FROM {table} AS t WHERE tenant_id = 't1' ORDER BY 1")
        rows[table] = [row["row"] for row in found]
    return rows


async def test_another_tenants_objects_are_not_there(api, names, attacker):
    """All calls with a name in their path, from the table that the router is made of."""
    before = await read_victim(api)
    assert sum(map(len, before.values())) > 6
    wrong = {}
    for operation in OF_TENANTS:
        if operation.name == "batch_webhook_put":
            continue  # registers the caller's own batch of the same name: below
        path = operation.path.format_map(names)
        body = None if operation.body is None else BODIES.get(operation.name, {})
        kind = "application/json" if body is not None else ""
        reply = await attacker.call(operation.method, path, body, **({"Content_Type": kind} if kind else {}))
        if reply.status != 404 or MARK.encode() in reply.raw:
            wrong[operation.name] = reply.status, reply.raw
    assert wrong == {}
    assert await read_victim(api) == before


async def test_lists_are_empty_and_narrowing_by_anothers_names_finds_nothing(api, names, attacker):
    for operation in LISTS:
        reply = await attacker.get(operation.path)
        assert reply.status == 200, (operation.name, reply.raw)
        assert MARK.encode() not in reply.raw
        assert reply.json.get("data", []) == []
    for query in (f"webhook={MARK}", f"batch={MARK}", f"job={MARK}-job", "state=pending"):
        assert await attacker.deliveries(f"?{query}") == []


async def test_a_cursor_of_anothers_list_shows_nothing_of_it(api, names, attacker):
    await api.finish(f"{MARK}-2", "other-job")
    page = (await api.get("/v1/deliveries?limit=1")).json
    assert page["next_cursor"]
    reply = await attacker.get(f"/v1/deliveries?cursor={page['next_cursor']}")
    assert (reply.status, reply.json["data"]) == (200, [])
    for forged in ("deliveries:999999999", f"webhooks:{MARK}", f"batches:{MARK}"):
        cursor = base64.urlsafe_b64encode(forged.encode()).decode().rstrip("=")
        for path in ("/v1/deliveries", "/v1/webhooks", "/v1/batches"):
            assert MARK.encode() not in (await attacker.get(f"{path}?cursor={cursor}")).raw


async def test_the_same_names_are_other_objects(api, names, attacker):
    """Batch, job and webhook of the same name: nothing is taken over, and no message goes to the other."""
    before = await read_victim(api)
    made = await attacker.post("/v1/webhooks", {"url": URL_2, "id": MARK, "event_types": ["*"]})
    assert made.status == 201, made.raw
    assert (await attacker.put(f"/v1/batches/{MARK}/webhook", {"url": URL_2})).status in {200, 201}
    event = {**api.event("job.completed", f"{MARK}-job", MARK, status="succeeded"), "tenant_id": "attacker"}
    event["batch"]["total"] = 1
    reply = await attacker.post("/v1/events", [event])
    assert reply.json["results"][0]["outcome"] == "applied", reply.raw
    mine = await attacker.deliveries()
    assert mine
    assert names["message_id"] not in {each["message_id"] for each in mine}
    assert (await attacker.delete(f"/v1/batches/{MARK}/webhook")).status == 204
    assert await read_victim(api) == before


async def test_events_speak_for_the_keys_own_tenant_only(api, names, attacker):
    before = await read_victim(api)
    for field, value in (("tenant_id", "t1"), ("tenant_id", None), ("tenant_id", "")):
        event = {**api.event("job.completed", f"{MARK}-job", MARK, status="failed", generation=9), field: value}
        reply = await attacker.post("/v1/events", [event])
        assert reply.status in {202, 403, 422}, reply.raw
    assert await read_victim(api) == before


async def test_events_that_name_anothers_incarnation_or_job_leave_them_alone(api, names, attacker):
    """Ids that the producer chose are the tenant's own too: nothing ends, leaves or is inherited."""
    batch = {"batch": {"name": "victims", "id": "bat_victim"}}
    await api.send(api.event("job.completed", "v1", status="succeeded") | batch)
    before = await read_victim(api)
    inherited = {"source": "datadistillers", "status": "success", "previous_job_id": f"{MARK}-job"}
    for event in (
        api.event("batch.sealed") | batch,
        api.event("job.completed", "v2", status="succeeded") | batch,
        api.event("job.removed", "v1", generation=9) | batch,
        api.event("batch.deleted") | batch,
        api.event("job.completed", "v3") | inherited,
    ):
        reply = await attacker.post("/v1/events", [{**event, "tenant_id": "attacker"}])
        assert reply.json["results"][0]["outcome"] in {"applied", "duplicate", "stale"}, reply.raw
    assert await read_victim(api) == before
    assert MARK not in str(await attacker.deliveries())


async def test_the_tenant_of_an_event_is_the_one_that_is_read(api, names, attacker):
    """A repeated key, and attributes around a CloudEvent, do not put an event under another tenant."""
    before = await read_victim(api)
    plain = orjson.dumps({**api.event("job.completed", "dup", status="failed"), "tenant_id": "attacker"})
    twice = plain[:-1] + b',"tenant_id":"t1"}'
    cloud = {"specversion": "1.0", "id": "c1", "source": "native", "type": "job.completed", "tenant_id": "attacker"}
    data = {"tenant_id": "t1", "job_id": "dup", "status": "failed"}
    structured = orjson.dumps({**cloud, "time": "2026-11-30T09:00:00Z", "data": data})
    for raw, kind in ((twice, "application/json"), (structured, "application/cloudevents+json")):
        reply = await attacker.call("POST", "/v1/events", data=raw, Content_Type=kind)
        assert reply.json["results"][0]["reason"] == "foreign_tenant", reply.raw
    assert (await attacker.get("/v1/jobs/dup")).status == 404
    assert await read_victim(api) == before


@pytest.mark.parametrize("call", ["pause", "rotate-secret", "test", "delete"])
async def test_a_webhook_of_the_same_id_is_worked_on_alone(api, names, attacker, call):
    assert (await attacker.post("/v1/webhooks", {"url": URL_2, "id": MARK})).status == 201
    before = await read_victim(api)
    path = f"/v1/webhooks/{MARK}"
    reply = await (attacker.delete(path) if call == "delete" else attacker.post(f"{path}/{call}", {}))
    assert reply.status in {200, 202, 204}, reply.raw
    assert await read_victim(api) == before


async def test_a_job_that_names_anothers_webhook_names_none(api, names, attacker):
    """It looks as if it named one that nobody has."""
    before = await read_victim(api)
    for job, webhook_id in (("j1", MARK), ("j2", "nobodys")):
        event = {**api.event("job.completed", job, status="succeeded", webhook_id=webhook_id), "tenant_id": "attacker"}
        assert (await attacker.post("/v1/events", [event])).json["results"][0]["outcome"] == "applied"
    told = {each["job_id"]: (each["state"], each["reason"], each["origin"]) for each in await attacker.deliveries()}
    assert told["j1"] == told["j2"]
    assert told["j1"][0] == "failed"
    assert await read_victim(api) == before


@pytest.mark.parametrize("tenant", ["t1", "t1,attacker", "T1", "attacker\t", "%74%31", "*"])
async def test_a_header_does_not_change_whose_key_it_is(api, names, attacker, tenant):
    for path in ("/v1/webhooks", "/v1/deliveries", f"/v1/webhooks/{MARK}"):
        reply = await attacker.get(path, X_Tenant_ID=tenant)
        assert MARK.encode() not in reply.raw
        assert reply.status in {200, 400, 403, 404}
        if reply.status == 200:
            assert reply.json["data"] == []


async def test_operators_calls_are_no_tenants_calls(api, names, attacker):
    operators = [op for op in OPERATIONS if not op.tenant and op.kind is not Kind.OPEN]
    assert len(operators) >= 5
    for operation in operators:
        path = operation.path.replace("{", "").replace("}", "")
        reply = await attacker.call(operation.method, path, {} if operation.body else None)
        assert reply.status == 403, (operation.name, reply.raw)
