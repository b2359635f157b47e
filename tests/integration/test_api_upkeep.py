"""What upkeep does for the API, test sends' limits, and keys from the command line."""

import argparse
from datetime import timedelta

import pytest

from service.api.parts import ApiLimits
from service.lifecycle import SystemClock, SystemRng
from service.profiles import load_profiles
from service.store.admin_upkeep import AdminUpkeep, Kept
from service.store.database import Database
from service.tools import keys
from tests.support.api import URL_1, running_api

KEPT = Kept(timedelta(days=400), timedelta(days=90))


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def test_rounds(api):
    upkeep = AdminUpkeep(api.database, api.parts.registry, load_profiles(), KEPT)
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w"}, Idempotency_Key="k")
    await api.post("/v1/webhooks/w/replay", {"since": "2000-01-01T00:00:00Z", "which": "all"})
    await api.post("/v1/webhooks/w/replay", {"since": "2000-01-01T00:00:00Z", "which": "all", "dry_run": True})
    await upkeep.advance_replays()
    assert await api.value("SELECT state FROM replays") == "done"
    since_ever = {"since": "0001-01-01T00:00:00Z", "until": "9999-12-31T23:59:59.999999Z", "which": "all"}
    assert (await api.post("/v1/webhooks/w/replay", since_ever)).status == 202
    await upkeep.advance_replays()
    assert await api.value("SELECT count(*) FROM replays WHERE state = 'done'") == 2
    await upkeep.roll_up()
    await upkeep.prune()
    assert await api.value("SELECT count(*) FROM audit_log") == 4
    api.clock.added = 401 * 86_400.0
    await upkeep.prune()
    for table in ("audit_log", "idempotency", "replays"):
        assert await api.value(f"SELECT count(*) FROM {table}") == 0, table


async def test_dead_letters_are_kept_as_long_as_messages(api):
    for offset, days in enumerate((1, 89, 91, 400)):
        await api.fetch(
            """INSERT INTO dead_letters (topic, partition, kafka_offset, reason, detail, headers, size, sha256, received_at)
            VALUES ('t', 0, $1, 'schema', '', '[]', 0, '', now() - make_interval(days => $2))""",
            offset, days,
        )  # fmt: skip
    await AdminUpkeep(api.database, api.parts.registry, load_profiles(), KEPT).prune()
    assert [row[0] for row in await api.fetch("SELECT kafka_offset FROM dead_letters ORDER BY 1")] == [0, 1]


async def test_tests_are_limited_per_webhook_and_tenant(database):
    async with running_api(database, limits=ApiLimits(tests_per_webhook=1, test_wait=timedelta())) as api:
        for name in ("a", "b", "c"):
            await api.post("/v1/webhooks", {"url": URL_1, "id": name})
        statuses = [(await api.post(f"/v1/webhooks/{name}/test")).status for name in ("a", "a", "b", "c")]
        assert statuses[:3] == [202, 429, 202] and statuses[3] == 429
        await api.put("/v1/batches/nov/webhook", {"url": URL_1})
        assert (await api.as_tenant("t2").post("/v1/batches/nov/webhook/test")).status == 404
        assert (await api.as_tenant("t2").post("/v1/webhooks/a/test")).status == 404
        assert (await api.post("/v1/batches/nov/webhook/test")).status == 429
        pending = await api.deliveries("?type=webhook.test")
        assert [d["origin"] for d in pending] == ["test", "test"]
        assert (await api.post(f"/v1/deliveries/{pending[0]['delivery_id']}/redeliver")).code == "test_delivery"


async def test_keys_from_the_command_line(api, database):
    rng = SystemRng()
    async with Database(database, size=1) as own:
        key = await keys.create_key(
            own, rng, tenant_id="t1", roles=["read"], description="a\x1b[31m", expires_in=timedelta(days=1)
        )
        assert (await api.as_key(key).get("/v1/batches")).status == 200
        lines = await keys.list_keys(own)
        assert len(lines) == 2 and "a\\x1b[31m" in lines[1] and key.partition(".")[2] not in lines[1]
        key_id = key.partition(".")[0]
        assert await keys.revoke_key(own, key_id)
        assert not await keys.revoke_key(own, "whkey_none")
        assert "revoked" in (await keys.list_keys(own, "t1"))[1]
        for tenant, roles in (("t1", ["operator"]), (None, ["read"]), ("t1", []), ("t1", ["odd"])):
            with pytest.raises(ValueError, match=r"roles|operator"):
                await keys.create_key(own, rng, tenant_id=tenant, roles=roles)
    assert (await api.as_key(key).get("/v1/batches")).status == 401
    assert [e["key_id"] for e in (await api.get("/v1/audit")).json["data"]] == ["cli", "cli"]


async def test_keys_expire_by_the_databases_clock(api, database, monkeypatch):
    right = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: right(clock) - timedelta(hours=2))
    async with Database(database, size=1) as own:
        key = await keys.create_key(own, SystemRng(), tenant_id="t1", roles=["read"], expires_in=timedelta(hours=1))
    assert (await api.as_key(key).get("/v1/batches")).status == 200


def run(*words):
    parser = argparse.ArgumentParser()
    keys.add_arguments(parser)
    return keys.run(parser.parse_args(words))


def test_the_keys_command(worker_database, monkeypatch, capsys):
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", worker_database)
    assert run("create", "--tenant", "t1", "--role", "read", "--expires-in", "90d") == 0
    key = capsys.readouterr().out.strip()
    assert run("list", "--tenant", "t1") == 0
    assert key.partition(".")[0] in capsys.readouterr().out
    assert run("revoke", key.partition(".")[0]) == 0
    assert run("revoke", "whkey_\x1b") == 1
    assert "\\x1b" in capsys.readouterr().err
    assert run("create", "--role", "read") == 2
    capsys.readouterr()
    assert run("list") == 0
    before = capsys.readouterr().out
    for bad in ("", ".", "..", "a\x1b[31m", "a\0b", "a\udc80", "x" * 256):
        assert run("create", "--tenant", bad, "--role", "read") == 2, bad
        told = capsys.readouterr()
        assert "a tenant id has" in told.err and "\x1b" not in told.err and told.out == ""
    assert run("list") == 0
    assert capsys.readouterr().out == before, "none of them was made"
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", "postgresql://127.0.0.1:1/none")
    assert run("list") == 1
