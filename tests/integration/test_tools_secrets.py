"""`webhookd secrets rotate-encryption`: everything sealed ends under the first key, beside a service that writes."""

import base64
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

import service
from service.sealing import Sealer, Undecryptable
from service.store.audit import list_entries
from service.store.database import Database
from service.store.idempotency import build_scope, find_answer, keep_answer
from service.store.resealing import COLUMNS, LOOKS, Resealing
from service.store.signing_keys import unseal_keys
from service.store.webhook_seals import seal_url, unseal_headers, unseal_url
from service.store.webhooks import find_webhook
from service.tools import secrets
from tests.support.api import OPERATOR_KEY, URL_1, URL_2, running_api
from tests.support.service import run_program

OLD, NEW, ALIEN = (
    ("k1", b"\x07" * 32),
    ("k2", b"\x08" * 32),
    ("k0", b"\x09" * 32),
)  # k1 is what the API's tests seal with
BOTH, ONLY_NEW = Sealer([NEW, OLD]), Sealer([NEW])
SEALED = {
    "webhooks": ("url", "custom_headers", "secrets"),
    "tenants": ("signing_secrets",),
    "idempotency": ("answer",),
}


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


@pytest.fixture
async def filled(api):
    """Five webhooks, one of them deleted and one behind a one-shot URL, a default secret, a kept answer."""
    await api.post("/v1/signing-keys/rotate", {})
    made = {"url": URL_2, "id": "w1", "custom_headers": {"x-key": "v"}, "signing": "ed25519"}
    assert (await api.post("/v1/webhooks", made, Idempotency_Key="k")).status == 201
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w2"})
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.delete("/v1/webhooks/w2")
    await api.as_tenant("t2").post("/v1/webhooks", {"url": URL_1, "id": "w1"})
    await api.send(api.event("job.completed", "job-1", status="succeeded", webhook_url=URL_1))
    return api


async def list_sealed(api):
    return {
        (table, column): [row[0] for row in await api.fetch(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")]
        for table, columns in SEALED.items()
        for column in columns
    }


def count_old(sealed):
    return sum(BOTH.needs_reseal(value) for values in sealed.values() for value in values)


def test_every_sealed_column_is_known():
    """Whatever a migration calls sealed is walked through."""
    scripts = (path.read_text() for path in (Path(service.__file__).parent / "store" / "migrations").glob("*.sql"))
    named = [one for text in scripts for one in re.findall(r"^    (\w+) bytea\b.*-- sealed", text, flags=re.MULTILINE)]
    assert sorted(named) == sorted(column.name.partition(".")[2] for column in COLUMNS)
    assert [column.name for column in COLUMNS] == [f"{t}.{c}" for t, columns in SEALED.items() for c in columns]


async def rotate(api, sealer=BOTH, **options):
    return {tally.column: tally async for tally in Resealing(api.database, sealer, **options).run()}


async def test_everything_ends_under_the_first_key(filled):
    before = await list_sealed(filled)
    assert all(before.values())
    revisions = await filled.fetch("SELECT webhook_key, revision, changed_at FROM webhooks ORDER BY 1")
    tallies = await rotate(filled, per_batch=2)
    assert {name: tally.resealed for name, tally in tallies.items()} == {
        "webhooks.url": 5,
        "webhooks.custom_headers": 1,
        "webhooks.secrets": 4,
        "tenants.signing_secrets": 1,
        "idempotency.answer": 1,
    }
    assert not any(tally.left or tally.broken for tally in tallies.values())
    after = await list_sealed(filled)
    assert (count_old(before), count_old(after)) == (12, 0)
    assert await filled.fetch("SELECT webhook_key, revision, changed_at FROM webhooks ORDER BY 1") == revisions
    again = await rotate(filled)
    assert sum(tally.seen for tally in again.values()) == 12
    assert sum(tally.resealed for tally in again.values()) == 0


async def test_what_was_sealed_opens_with_the_new_key_alone(filled):
    scope = build_scope("t1", ("a",), b"request")
    now = datetime.now(UTC)
    async with filled.database.transaction() as session:
        await keep_answer(session, Sealer([OLD]), scope, 201, b"answer", now)
        old = await find_webhook(session, filled.parts.registry, "t1", "w1")
    await rotate(filled)
    registry = replace(filled.parts.registry, sealer=ONLY_NEW)
    async with filled.database.session() as session:
        found = await find_webhook(session, registry, "t1", "w1")
        answer = await find_answer(session, ONLY_NEW, scope, now)
    assert old.settings == found.settings and not found.broken
    assert old.keys == found.keys
    assert (answer.body, answer.same) == (b"answer", True)
    for row in await filled.fetch("SELECT * FROM webhooks"):
        assert unseal_url(ONLY_NEW, row["tenant_id"], row["webhook_id"], row["url"]) in {URL_1, URL_2}
        if row["custom_headers"]:
            unseal_headers(ONLY_NEW, row["tenant_id"], row["webhook_id"], row["custom_headers"])
    default = await filled.value("SELECT signing_secrets FROM tenants WHERE signing_secrets IS NOT NULL")
    assert len(unseal_keys(ONLY_NEW, "t1", "", default).hmac) == 1


async def test_a_column_that_was_written_meanwhile_is_not_overwritten(filled, monkeypatch):
    """The API changes a webhook between the reading and the writing of a batch."""
    write, times = Resealing._write, []

    async def write_late(walk, column, resealed):
        if column.name == "webhooks.url" and len(times) < 2:
            times.append(1)
            assert (await filled.put("/v1/batches/nov/webhook", {"url": f"{URL_1}/{len(times)}"})).status == 200
        return await write(walk, column, resealed)

    monkeypatch.setattr(Resealing, "_write", write_late)
    tallies = await rotate(filled)
    assert (tallies["webhooks.url"].resealed, tallies["webhooks.url"].left, tallies["webhooks.url"].seen) == (5, 0, 5)
    row = await filled.connection.fetchrow("SELECT tenant_id, webhook_id, url FROM webhooks WHERE kind = 0")
    assert unseal_url(ONLY_NEW, *row) == f"{URL_1}/2"


async def test_a_row_that_never_rests_is_left_and_told(filled, monkeypatch):
    write, times = Resealing._write, []

    async def write_late(walk, column, resealed):
        if column.name == "webhooks.url":
            times.append(1)
            await filled.put("/v1/batches/nov/webhook", {"url": f"{URL_1}/{len(times)}"})
        return await write(walk, column, resealed)

    monkeypatch.setattr(Resealing, "_write", write_late)
    tally = (await rotate(filled))["webhooks.url"]
    assert (tally.left, len(times), tally.resealed) == (1, LOOKS, 4)
    assert "1 changed by others meanwhile: run it again" in "\n".join(secrets.describe(tally))
    monkeypatch.undo()
    assert (await rotate(filled))["webhooks.url"].resealed == 1


async def test_what_does_not_open_is_reported_and_stays(filled):
    alien = seal_url(Sealer([ALIEN]), "t1", "w2", URL_1)
    swapped = await filled.value("SELECT secrets FROM webhooks WHERE tenant_id = 't2'")
    await filled.connection.execute("UPDATE webhooks SET url = $1 WHERE webhook_id = 'w2'", alien)
    await filled.connection.execute("UPDATE webhooks SET secrets = $1 WHERE kind = 0", swapped)
    await filled.connection.execute("UPDATE webhooks SET custom_headers = 'junk' WHERE custom_headers IS NOT NULL")
    tallies = await secrets.rotate_encryption(filled.database, BOTH)
    told = "\n".join(line for tally in tallies for line in secrets.describe(tally))
    assert {b.column: b.reason for tally in tallies for b in tally.broken} == {
        "webhooks.url": "sealed with a key that is not configured",
        "webhooks.custom_headers": "not a sealed value",
        "webhooks.secrets": "changed, or sealed for another row or tenant",
    }
    assert "  tenant t1 w2: sealed with a key that is not configured" in told
    assert await filled.value("SELECT url FROM webhooks WHERE webhook_id = 'w2'") == alien
    assert [tally.resealed for tally in tallies] == [4, 0, 3, 1, 1]


async def test_it_goes_on_where_it_was_cut_short(filled):
    walk = Resealing(filled.database, BOTH, per_batch=1)
    async for tally in walk.run():
        assert tally.column == "webhooks.url"
        break
    assert count_old(await list_sealed(filled)) == 7
    assert sum(tally.resealed for tally in (await rotate(filled)).values()) == 7


async def test_the_audit_log_has_the_counts(filled):
    await secrets.rotate_encryption(filled.database, BOTH)
    await secrets.rotate_encryption(filled.database, BOTH)
    async with filled.database.session() as session:
        noted = [e for e in await list_entries(session, 2**62, None, 99) if e["action"] == "secrets_rotate_encryption"]
    assert [(entry["key_id"], entry["tenant_id"]) for entry in noted] == [("cli", None)]
    assert '"webhooks.url":5' in noted[0]["after"]


async def test_a_service_with_both_keys_goes_on_while_it_runs(filled):
    filled.parts.registry.sealer.rekey([OLD, NEW])
    await rotate(filled)
    client = filled.as_key(OPERATOR_KEY, "t1")
    assert (await client.get("/v1/webhooks/w1?reveal=url")).json["url"] == URL_2
    same = await client.post(
        "/v1/webhooks",
        {"url": URL_2, "id": "w1", "custom_headers": {"x-key": "v"}, "signing": "ed25519"},
        Idempotency_Key="k",
    )
    assert same.status == 201
    filled.parts.registry.sealer.rekey([OLD])
    with pytest.raises(Undecryptable):
        unseal_url(
            Sealer([OLD]), *await filled.connection.fetchrow("SELECT tenant_id, webhook_id, url FROM webhooks LIMIT 1")
        )


async def test_the_command(filled, database):
    keys = ",".join(f"{name}:{base64.b64encode(material).decode()}" for name, material in (NEW, OLD))
    settings = {"WEBHOOKD_DATABASE_URL": database, "WEBHOOKD_ENCRYPTION_KEYS": keys}
    done = await run_program("secrets", "rotate-encryption", settings=settings)
    assert (done.status, done.stderr) == (0, "")
    assert "webhooks.url             5 looked at, 5 sealed anew\n" in done.stdout
    alone = {**settings, "WEBHOOKD_ENCRYPTION_KEYS": keys.split(",")[1]}
    failed = await run_program("secrets", "rotate-encryption", settings=alone)
    assert failed.status == 1
    assert "NOT READABLE" in failed.stdout
    unset = await run_program("secrets", "rotate-encryption", settings={"WEBHOOKD_DATABASE_URL": database})
    assert unset.status == 2
    assert "WEBHOOKD_ENCRYPTION_KEYS" in unset.stderr
    away = await run_program(
        "secrets", "rotate-encryption", settings={**settings, "WEBHOOKD_DATABASE_URL": "postgresql://x@127.0.0.1:1/x"}
    )
    assert away.status == 1


async def test_an_empty_database_is_done_at_once(database):
    async with Database(database, size=1) as store:
        assert [tally.seen async for tally in Resealing(store, BOTH).run()] == [0] * len(COLUMNS)
