"""What holds for every call of the document: keys, roles, tenants, methods, and a second replica."""

import asyncio

import pytest

from service.api.operations import OPERATIONS
from service.store.keys import Role
from tests.support.api import URL_1, running_api
from tests.support.calls import list_calls, list_requests, send_example

TENANT = "acct_42"
CALLS = list_calls()
KEYED = [operation for operation in OPERATIONS if CALLS[operation.name].get("security") != []]
assert len(KEYED) == len(OPERATIONS) - 4, "health and documents are open"
ROLES = {Role.READ: {"read", "write"}, Role.WRITE: {"write"}, Role.INGEST: {"ingest"}, Role.OPERATOR: set()}
LISTS = {"batch_list", "webhook_list", "delivery_list", "signing_keys_get"}  # of another tenant: empty, not 404
MAKERS = {"batch_webhook_put", "webhook_create", "events_post", "signing_keys_rotate"}  # they need no object


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running.as_tenant(TENANT)


async def prepare(api):
    """Make everything that the examples name; return the ids that the service gave."""
    await api.finish("invoices-nov", "doc_7f31")
    await api.put("/v1/batches/invoices-nov/webhook", {"url": URL_1})
    await api.post("/v1/webhooks", {"url": URL_1, "id": "erp", "event_types": ["*"]})
    replay = await api.post("/v1/webhooks/erp/replay", {"since": "2020-01-01T00:00:00Z", "which": "all"})
    (delivery,) = await api.deliveries()
    return {
        "replay_id": replay.json["replay"]["replay_id"],
        "delivery_id": delivery["delivery_id"],
        "message_id": delivery["message_id"],
        "key_id": (await api.make_key("read", tenant=TENANT)).partition(".")[0],
    }


async def look(api):
    """All that a call could change."""
    tables = ("webhooks", "deliveries", "deliveries_done", "messages", "message_bodies", "replays", "batches", "jobs")
    return {table: [dict(row) for row in await api.fetch(f"SELECT * FROM {table} ORDER BY 1, 2")] for table in tables}


async def send(api, operation, named):
    call = CALLS[operation.name]
    return await send_example(api, call, list_requests(call)[0], named)


async def test_without_a_key_nothing_is_told_and_nothing_done(api, monkeypatch):
    monkeypatch.setattr("service.api.limits.WRONG_KEY_WAIT", 0.0)
    named = await prepare(api)
    before = await look(api)
    for operation in KEYED:
        for key in ("", "whkey_0.none"):
            reply = await send(api.as_key(key), operation, named)
            assert (reply.status, reply.code) == (401, "unauthorized"), operation.name
            assert "Bearer" in reply.headers["WWW-Authenticate"], operation.name
    assert await look(api) == before


async def test_every_call_needs_its_role(api):
    named = await prepare(api)
    keys = {role: await api.make_key(role, tenant=TENANT) for role in ("read", "write", "ingest")}
    before = await look(api)
    for operation in KEYED:
        for role in keys.keys() - ROLES[operation.role]:
            reply = await send(api.as_key(keys[role]), operation, named)
            assert (reply.status, reply.code) == (403, "missing_role"), (operation.name, role)
    assert await look(api) == before


async def test_another_tenants_objects_are_404_to_every_call(api):
    named = await prepare(api)
    key = api.as_key(await api.make_key("write", "read", tenant="t2"))
    before = await look(api)
    for operation in KEYED:
        if operation.role in {Role.OPERATOR, Role.INGEST} or operation.name in MAKERS:
            continue
        reply = await send(key, operation, named)
        if operation.name in LISTS:
            assert (reply.status, reply.json["data"]) == (200, []), operation.name
        else:
            assert (reply.status, reply.code) == (404, "not_found"), (operation.name, reply.raw)
    after = await look(api)
    assert {table: rows for table, rows in after.items() if table != "batches"} == {
        table: rows for table, rows in before.items() if table != "batches"
    }
    assert [row["tenant_id"] for row in after["batches"]] == [TENANT], "looking opens no batch"


async def test_a_path_takes_only_its_methods(api):
    paths = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, set()).add(operation.method)
    for path, methods in paths.items():
        for method in {"GET", "PUT", "POST", "PATCH", "DELETE"} - methods:
            reply = await api.call(method, path.replace("{", "").replace("}", ""))
            assert (reply.status, reply.code) == (405, "method_not_allowed"), (method, path)
            assert methods <= {word.strip() for word in reply.headers["Allow"].split(",")}, path


async def test_two_replicas_are_one_service(api, database):
    named = await prepare(api)
    async with running_api(database) as second:
        other = second.as_tenant(TENANT)
        made = await api.post("/v1/webhooks", {"url": URL_1, "id": "w2"}, Idempotency_Key="once")
        again = await other.post("/v1/webhooks", {"url": URL_1, "id": "w2"}, Idempotency_Key="once")
        assert (again.status, again.raw) == (made.status, made.raw), "the secret is not lost with its answer"
        reused = await other.post("/v1/webhooks", {"url": URL_1, "id": "w3"}, Idempotency_Key="once")
        assert (reused.status, reused.code) == (409, "idempotency_key_reused")
        revision = made.json["revision"]
        patched = await other.call("PATCH", "/v1/webhooks/w2", {"description": "x"}, If_Match=f'"{revision}"')
        assert patched.status == 200, patched.raw
        late = await api.call("PATCH", "/v1/webhooks/w2", {"description": "y"}, If_Match=f'"{revision}"')
        assert (late.status, late.code) == (412, "revision_mismatch")
        key = await api.make_key("read", tenant=TENANT)
        assert (await other.as_key(key).get("/v1/webhooks")).status == 200
        await api.delete("/v1/keys/" + key.partition(".")[0])
        assert (await other.as_key(key).get("/v1/webhooks")).status == 401
        path = f"/v1/deliveries/{named['delivery_id']}/redeliver"
        both = await asyncio.gather(api.post(path), other.post(path))
        assert sorted(reply.status for reply in both) == [202, 409], "one extra attempt"
        body = {"since": "2020-01-01T00:00:00Z", "which": "all"}
        both = await asyncio.gather(*(each.post("/v1/webhooks/w2/replay", body) for each in (api, other)))
        assert sorted(reply.status for reply in both) == [202, 409], "one replay"
        both = await asyncio.gather(*(each.post("/v1/webhooks", {"url": URL_1, "id": "w4"}) for each in (api, other)))
        assert sorted(reply.status for reply in both) == [201, 409], "one webhook of a name"
        for name in ("pause", "enable"):
            assert {(await each.post(f"/v1/webhooks/erp/{name}")).status for each in (api, other)} == {200}
        rotated = await asyncio.gather(*(each.post("/v1/webhooks/erp/rotate-secret") for each in (api, other)))
        assert sorted(reply.status for reply in rotated) == [200, 409], "a second rotation inside the overlap"
        both = await asyncio.gather(*(each.delete("/v1/webhooks/erp") for each in (api, other)))
        assert sorted(reply.status for reply in both) == [204, 404]


async def test_two_replicas_are_one_service_to_batches_and_operators(api, database):
    named = await prepare(api)
    path = f"/v1/deliveries/{named['delivery_id']}"
    async with running_api(database) as second:
        both = (api, second.as_tenant(TENANT))
        put = await asyncio.gather(*(each.put("/v1/batches/twice/webhook", {"url": URL_1}) for each in both))
        assert sorted(reply.status for reply in put) == [200, 201]
        assert sorted(reply.json["secret"] is not None for reply in put) == [False, True], "the secret is shown once"
        hook = "/v1/batches/twice/webhook"
        rotated = await asyncio.gather(*(each.post(f"{hook}/rotate-secret") for each in both))
        assert sorted(reply.status for reply in rotated) == [200, 409]
        revoked = await asyncio.gather(*(each.post(f"{hook}/revoke-previous-secret") for each in both))
        assert {reply.status for reply in revoked} == {204}
        renotified = await asyncio.gather(*(each.post("/v1/batches/invoices-nov/renotify") for each in both))
        assert {reply.status for reply in renotified} == {409}, "its delivery is pending"
        canceled = await asyncio.gather(*(each.post(f"{path}/cancel") for each in both))
        assert sorted(reply.status for reply in canceled) == [200, 409]
        again = await asyncio.gather(*(each.post("/v1/batches/invoices-nov/renotify") for each in both))
        assert sorted(reply.status for reply in again) == [202, 409], "one fresh schedule"
        paused = await asyncio.gather(*(each.post("/v1/operator/pauses", {"tenant_id": "t9"}) for each in both))
        assert sorted(reply.status for reply in paused) == [200, 201]
        assert [len((await each.get("/v1/operator/pauses")).json["data"]) for each in both] == [1, 1]
        gone = await asyncio.gather(*(each.call("DELETE", "/v1/operator/pauses?tenant_id=t9") for each in both))
        assert sorted(reply.status for reply in gone) == [204, 404]
        gone = await asyncio.gather(*(each.delete(hook) for each in both))
        assert sorted(reply.status for reply in gone) == [204, 404]
