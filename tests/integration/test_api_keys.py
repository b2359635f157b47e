"""Who may call: keys, roles, tenants, and what a key looks like at rest."""

import asyncio
import hashlib

import pytest

from service.api.parts import ApiLimits
from tests.support.api import OPERATOR_KEY, running_api


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def test_no_key_and_bad_keys_are_401_with_a_challenge(api):
    for headers in (
        {},
        {"Authorization": ""},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer nonsense"},
        {"Authorization": "Digest x"},
        {"Authorization": "Basic %%%"},
        {"Authorization": "Basic bm9jb2xvbg=="},
        {"Authorization": "Bearer whkey_00.ff"},
        {"Authorization": "Bearer " + OPERATOR_KEY[:-1]},
    ):
        api.headers = headers
        reply = await api.get("/v1/webhooks")
        assert (reply.status, reply.code) == (401, "unauthorized"), headers
        assert "Bearer" in reply.headers["WWW-Authenticate"]


async def test_who_tries_keys_is_slowed_down_and_nobody_else(api, monkeypatch):
    monkeypatch.setattr("service.api.limits.WRONG_KEY_WAIT", 6.0)
    monkeypatch.setattr("service.api.limits.MAX_WAITING", 3)
    monkeypatch.setattr(api.clock, "monotonic", lambda: 1000.0)  # no new ration meanwhile
    guesser = api.as_key("whkey_00.ff", "t1")
    for _ in range(60):
        assert (await guesser.get("/v1/webhooks")).status == 401
    guesses = [asyncio.create_task(guesser.get("/v1/webhooks")) for _ in range(4)]
    done, waiting = await asyncio.wait(guesses, return_when=asyncio.FIRST_COMPLETED)
    (refused,) = [task.result() for task in done]
    assert (refused.status, refused.code, refused.headers["Retry-After"]) == (429, "rate_limited", "60")
    assert (await api.as_key(OPERATOR_KEY, "t1").get("/v1/webhooks")).status == 200
    assert not any(task.done() for task in waiting)
    assert {(await task).status for task in waiting} == {401}
    monkeypatch.setattr("service.api.limits.WRONG_KEY_WAIT", 0.0)
    assert (await api.as_key("").get("/v1/webhooks")).status == 401


async def test_an_operator_key_names_its_tenant(api):
    reply = await api.as_key(OPERATOR_KEY).get("/v1/webhooks")
    assert (reply.status, reply.code) == (400, "tenant_needed")
    assert (await api.as_key(OPERATOR_KEY, "t1").get("/v1/webhooks")).status == 200
    assert (await api.as_basic("operator", OPERATOR_KEY).get("/v1/keys")).status == 200
    reply = await api.as_key(OPERATOR_KEY, "..").get("/v1/webhooks")
    assert (reply.status, reply.code) == (400, "bad_tenant")
    twice = [("Authorization", f"Bearer {OPERATOR_KEY}"), ("X-Tenant-ID", "t1"), ("X-Tenant-ID", "t2")]
    async with api.http.get(api.base + "/v1/webhooks", headers=twice) as answer:
        assert (answer.status, (await answer.json(content_type=None))["code"]) == (400, "bad_tenant")


async def test_a_tenant_key_works_as_bearer_and_basic_and_only_for_its_tenant(api):
    made = (await api.post("/v1/keys", {"tenant_id": "t1", "roles": ["read"], "description": "poller"})).json
    bearer = api.as_key(made["key"])
    basic = api.as_basic(made["key_id"], made["secret"])
    assert (await bearer.get("/v1/webhooks")).status == 200
    assert (await basic.get("/v1/webhooks")).status == 200
    reply = await bearer.as_tenant("t2").get("/v1/webhooks")
    assert (reply.status, reply.code) == (403, "wrong_tenant")
    (listed,) = (await api.get("/v1/keys")).json["data"]
    assert listed["last_used_at"] is not None
    assert "key" not in listed and "secret" not in listed


async def test_only_a_hash_is_stored(api):
    made = (await api.post("/v1/keys", {"tenant_id": "t1", "roles": ["read"]})).json
    (row,) = await api.fetch("SELECT * FROM api_keys")
    assert row["secret_hash"] == hashlib.sha256(made["secret"].encode()).digest()
    assert made["secret"] not in str(dict(row))
    (entry,) = await api.fetch("SELECT * FROM audit_log")
    assert made["secret"] not in str(dict(entry)) and entry["action"] == "key_create"


@pytest.mark.parametrize(
    ("role", "allowed"),
    [("read", {"GET"}), ("write", {"GET", "POST"}), ("ingest", {"EVENTS"})],
)
async def test_roles(api, role, allowed):
    client = api.as_key(await api.make_key(role))
    found = {
        "GET": (await client.get("/v1/webhooks")).status,
        "POST": (await client.post("/v1/webhooks", {"url": "https://receiver.example/"})).status,
        "EVENTS": (await client.post("/v1/events", [api.event("job.queued", "j")])).status,
        "KEYS": (await client.get("/v1/keys")).status,
        "AUDIT": (await client.get("/v1/audit")).status,
    }
    assert {name for name, status in found.items() if status < 300} == allowed
    assert {status for name, status in found.items() if name not in allowed} == {403}


async def test_revoked_and_expired_keys_are_refused(api):
    key = await api.make_key("read")
    client = api.as_key(key)
    assert (await client.get("/v1/webhooks")).status == 200
    assert (await api.delete("/v1/keys/" + key.partition(".")[0])).status == 204
    assert (await client.get("/v1/webhooks")).status == 401
    soon = (api.clock.now()).isoformat().replace("+00:00", "Z")
    assert (await api.post("/v1/keys", {"tenant_id": "t1", "roles": ["read"], "expires_at": soon})).status == 422
    late = await api.post("/v1/keys", {"tenant_id": "t1", "roles": ["read"], "expires_at": "2999-01-01T00:00:00+02:00"})
    assert late.json["expires_at"] == "2998-12-31T22:00:00.000000Z"
    never = {"tenant_id": "t1", "roles": ["read"], "expires_at": "9999-12-31T23:59:59.999999Z"}
    key = (await api.post("/v1/keys", never)).json["key"]
    assert (await api.as_key(key).get("/v1/webhooks")).status == 200
    api.clock.added = 32_000_000_000.0
    assert (await api.as_key(late.json["key"]).get("/v1/webhooks")).status == 401


async def test_operator_keys_have_no_tenant_and_others_have_one(api):
    assert (await api.post("/v1/keys", {"tenant_id": "t1", "roles": ["operator"]})).status == 422
    assert (await api.as_key(OPERATOR_KEY).post("/v1/keys", {"roles": ["read"]})).status == 422
    client = api.as_key(await api.make_key("operator", tenant=None), "t9")
    assert (await client.get("/v1/audit")).status == 200
    assert (await client.get("/v1/batches")).status == 200
    assert (await api.delete("/v1/keys/whkey_none")).status == 404


async def test_the_tenant_of_a_new_key_may_be_named_as_in_every_call(api):
    made = (await api.as_tenant("t9").post("/v1/keys", {"roles": ["read"]})).json
    assert made["tenant_id"] == "t9"
    assert (await api.as_key(made["key"]).get("/v1/webhooks")).status == 200
    named = await api.as_tenant("t9").post("/v1/keys", {"tenant_id": "t1", "roles": ["read"]})
    assert named.json["tenant_id"] == "t1"
    operator = await api.as_tenant("t9").post("/v1/keys", {"roles": ["operator"]})
    assert (operator.status, operator.json["tenant_id"]) == (201, None)


async def test_the_audit_log_writes_times_as_every_answer_does(api):
    made = (await api.post("/v1/keys", {"tenant_id": "t1", "roles": ["read"]})).json
    await api.delete(f"/v1/keys/{made['key_id']}")
    revoked, created = (await api.get("/v1/audit")).json["data"]
    assert created["after"]["created_at"] == revoked["before"]["created_at"] == made["created_at"]
    assert revoked["after"]["revoked_at"].endswith("Z") and len(revoked["after"]["revoked_at"]) == len(
        made["created_at"]
    )


async def test_limits_per_key_and_tenant(database):
    async with running_api(database, limits=ApiLimits(reads=3, writes=2)) as api:
        key = await api.make_key("write")
        client = api.as_key(key)
        statuses = [(await client.get("/v1/batches")).status for _ in range(4)]
        assert statuses == [200, 200, 200, 429]
        reply = await client.get("/v1/batches")
        assert reply.code == "rate_limited" and int(reply.headers["Retry-After"]) >= 1
        assert (await client.post("/v1/webhooks", {"url": "https://a.example/"})).status == 201
        assert (await api.as_tenant("t2").get("/v1/batches")).status == 200
        api.clock.added = 21.0
        assert (await client.get("/v1/batches")).status == 200
        assert (await client.get("/v1/batches")).status == 429
