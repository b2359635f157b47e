"""`webhookd tenants purge`: everything of one tenant goes, nothing of any other, whatever else is going on."""

import argparse
import asyncio

import pytest

from service.ingest.poison import DeadLetter, Reason
from service.ingest.poll import Partition, Record
from service.store.audit import list_entries
from service.store.database import Database
from service.store.dead_letters import insert_dead_letters
from service.store.purging import TenantPurge, concerns
from service.tools import tenants
from tests.support.api import OPERATOR_KEY, URL_1, URL_2, running_api
from tests.support.service import run_program

NO_KEEPER = {
    "alembic_version",
    "schema_info",
    "partitions",
    "rollup_progress",
    "operational_progress",
    "kafka_offsets",
}  # of no tenant


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def no_wait(_):
    await asyncio.sleep(0)


async def fill(api, tenant):
    """Leave rows of a tenant in every table that can hold some."""
    mine = api.as_tenant(tenant)
    await mine.post("/v1/signing-keys/rotate", {})
    await api.post("/v1/keys", {"tenant_id": tenant, "roles": ["read"]})
    await mine.post("/v1/webhooks", {"url": URL_1, "id": "w", "event_types": ["*"]}, Idempotency_Key="k")
    await mine.put("/v1/batches/nov/webhook", {"url": URL_2, "custom_headers": {"x-key": "v"}})
    await mine.finish("nov", "job-1", "job-2")
    await mine.send(mine.event("job.removed", "job-2", "nov"), mine.event("job.queued", "job-3", "dec"))
    await mine.send(mine.event("job.completed", "job-4", status="succeeded", webhook_url=URL_1))
    await api.conclude(where=f"batch_key IS NOT NULL AND tenant_id = '{tenant}'")
    await mine.finish("nov", "job-1", generation=2)
    await api.connection.execute(
        "INSERT INTO attempts SELECT delivery_id, 1, now(), webhook_key, 5, 'delivered' FROM deliveries_done"
        " WHERE tenant_id = $1 UNION ALL SELECT delivery_id, 1, now(), webhook_key, 5, 'timeout' FROM deliveries"
        " WHERE tenant_id = $1",
        tenant,
    )
    keys = "SELECT webhook_key FROM webhooks WHERE tenant_id = $1"
    await api.connection.execute(f"INSERT INTO webhook_health (webhook_key) {keys} ON CONFLICT DO NOTHING", tenant)
    await api.connection.execute(
        f"INSERT INTO attempt_rollups SELECT webhook_key, now(), 'delivered', 1, 5, '{{1}}' FROM ({keys}) AS w", tenant
    )
    since = {"since": "2000-01-01T00:00:00Z", "which": "all"}
    await mine.post("/v1/webhooks/w/replay", {**since, "dry_run": True})
    await mine.post("/v1/webhooks/w/replay", since)
    await api.post("/v1/operator/pauses", {"tenant_id": tenant})
    await bury(api, tenant)


async def bury(api, tenant):
    value = b'{"tenant_id": "' + tenant.encode() + b'", "job'
    record = Record(
        Partition("t", 0), abs(hash(tenant)) % 10**9, DeadLetter(Reason.INVALID_JSON, "cut"), value, None, ()
    )
    async with api.database.transaction() as session:
        await insert_dead_letters(session, [record])


async def snapshot(api):
    """Every row of every table, as text."""
    tables = await api.fetch(
        "SELECT relname FROM pg_class WHERE relkind IN ('r', 'p') AND NOT relispartition"
        " AND relnamespace = 'public'::regnamespace ORDER BY relname"
    )
    return {
        name: sorted(row["text"] for row in await api.fetch(f"SELECT t::text AS text FROM {name} AS t"))
        for (name,) in tables
    }


async def test_everything_of_the_tenant_goes_and_nothing_else(api):
    await fill(api, "keep")
    before = await snapshot(api)
    await fill(api, "erase")
    filled = await snapshot(api)
    assert [name for name in filled if name not in NO_KEEPER and filled[name] == before[name]] == []
    purging = TenantPurge(api.database, "erase", per_batch=1)
    counted = await purging.count()
    assert set(counted) == set(filled) - NO_KEEPER
    purged = await purging.run(no_wait)
    assert purged.left == {}
    assert dict(purged.deleted) == counted
    after = await snapshot(api)
    assert after == before


async def test_the_audit_log_says_it_without_a_name(api):
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w"})
    purging = TenantPurge(api.database, "t1")
    target = await purging.write_audit(await purging.run(no_wait))
    async with api.database.session() as session:
        (entry,) = await list_entries(session, 2**62, None, 10)
    assert (entry["key_id"], entry["action"], entry["target"]) == ("cli", "tenant_purge", target)
    assert entry["tenant_id"] is None
    assert "t1" not in target.replace("sha256", "").split(":")
    assert '"complete":true' in entry["after"]
    assert '"webhooks":1' in entry["after"]


async def test_a_delivery_on_the_wire_is_waited_for(api):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov")
    await api.connection.execute("UPDATE deliveries SET lease_token = 7, lease_until = now() + interval '1 minute'")
    sweeps = []

    async def wait(_):
        sweeps.append(await api.value("SELECT count(*) FROM deliveries"))
        assert await api.value("SELECT count(*) FROM messages") == 1 if sweeps[-1] else True
        assert await api.value("SELECT count(*) FROM webhooks WHERE deleted_at IS NULL") == 0
        if len(sweeps) == 3:
            await api.connection.execute("UPDATE deliveries SET lease_until = now() - interval '1 second'")

    purged = await TenantPurge(api.database, "t1").run(wait)
    assert purged.left == {}
    assert sweeps[:4] == [1, 1, 1, 0]
    assert await api.value("SELECT count(*) FROM webhooks") == 0


async def test_rows_that_somebody_holds_are_not_waited_for(api, database):
    await api.finish("nov", "job-1", "job-2")
    async with Database(database, size=1) as other, other.transaction() as session:
        await session.connection.execute("SELECT FROM jobs WHERE job_id = 'job-1' FOR UPDATE")
        purged = await TenantPurge(api.database, "t1").run(no_wait, sweeps=2)
        assert purged.left["jobs"] == 1
        assert purged.left["batches"] == 1  # a job of it is left
    assert (await TenantPurge(api.database, "t1").run(no_wait)).left == {}


async def test_jobs_that_keep_arriving_are_reported_and_go_with_the_next_run(api, monkeypatch):
    sweep = TenantPurge._sweep

    async def sweep_and_arrive(purging, **options):
        deleted = await sweep(purging, **options)
        await api.finish("nov")
        return deleted

    await api.finish("nov", "job-0")
    purging = TenantPurge(api.database, "t1")
    with monkeypatch.context() as patched:
        patched.setattr(TenantPurge, "_sweep", sweep_and_arrive)
        purged = await purging.run(no_wait, sweeps=3)
    assert purged.deleted["jobs"] == 3
    assert (purged.left["jobs"], purged.left["batches"], purged.left["messages"]) == (1, 1, 1)
    assert (await purging.run(no_wait)).left == {}


async def test_events_beside_a_purge_are_all_applied(api):
    """No order of the two makes a record fail: what arrives makes new rows."""
    purging = TenantPurge(api.database, "t1", per_batch=3)

    async def arrive(number):
        for repeat in range(5):
            await api.finish("nov", f"job-{number}", f"job-{number}b", generation=repeat + 1)

    await asyncio.gather(*(arrive(number) for number in range(4)), purging.run(no_wait, sweeps=20))
    assert await api.value("SELECT count(*) FROM dead_letters") == 0
    assert (
        await api.value(
            "SELECT count(*) FROM jobs AS j WHERE NOT EXISTS (SELECT FROM batches AS b WHERE b.batch_key = j.batch_key)"
        )
        == 0
    )
    assert (await purging.run(no_wait)).left == {}


async def test_a_purged_tenant_may_come_again(api):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov")
    assert (await TenantPurge(api.database, "t1").run(no_wait)).left == {}
    made = await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    assert made.status == 201
    await api.finish("nov")
    assert await api.value("SELECT count(*) FROM deliveries") == 1


@pytest.mark.parametrize(
    ("key", "value", "whose"),
    [
        (b"erase/x", b"{", True),
        (b"keep/x", b"{", False),
        (None, None, False),
        (b"erase/x", b'{"tenant_id":"keep"}', False),
        (b"keep/x", b'{"tenant_id":"erase"}', True),
        (None, b'{"specversion":"1.0","data":{"tenant_id":"erase"}}', True),
        (None, b'{"specversion":"1.0","data":{"tenant_id":"keep"},"note":"erase"}', False),
        (None, b'{"tenant_id" : "erase", cut', True),
        (None, b'{"note":"erase", cut', False),
        (None, b'["erase"]', False),
        (None, b'{"tenant_id":["erase"]}', False),
        (None, b'\xff{"tenant_id":"erase"', True),
    ],
)
def test_whose_a_dead_letter_is(key, value, whose):
    assert concerns(key, value, "erase") is whose


@pytest.mark.parametrize("form", ["erase/mé 😀", "erase\\/mé 😀", "erase/m\\u00e9 \\ud83d\\ude00"])
async def test_dead_letters_are_found_in_every_spelling(api, form):
    await bury(api, "keep")
    value = b'{"tenant_id":"' + form.encode() + b'","x":'
    record = Record(Partition("t", 1), 1, DeadLetter(Reason.INVALID_JSON, "cut"), value, None, ())
    async with api.database.transaction() as session:
        await insert_dead_letters(session, [record])
    assert (await TenantPurge(api.database, "erase/mé 😀").run(no_wait)).deleted == {"dead_letters": 1}
    assert await api.value("SELECT count(*) FROM dead_letters") == 1


# The command


def parse(*words):
    parser = argparse.ArgumentParser()
    tenants.add_arguments(parser)
    return parser.parse_args(words)


def test_it_refuses_without_yes(capsys):
    assert tenants.run(parse("purge", "acct\x1b[31m")) == 2
    told = capsys.readouterr().err
    assert "--yes" in told and "\x1b" not in told
    with pytest.raises(SystemExit):
        parse("purge", "acct", "--yes", "--dry-run")


async def test_the_command(api, database, capsys):
    await api.as_key(OPERATOR_KEY, "t1").finish("nov")
    settings = {"WEBHOOKD_DATABASE_URL": database}
    counted = await run_program("tenants", "purge", "t1", "--dry-run", settings=settings)
    assert counted.status == 0
    assert "jobs             1\n" in counted.stdout
    assert await api.value("SELECT count(*) FROM jobs") == 1
    done = await run_program("tenants", "purge", "t1", "--yes", settings=settings)
    assert (done.status, done.stderr) == (0, "")
    assert "jobs             1\n" in done.stdout and "tenant sha256:" in done.stdout
    assert await api.value("SELECT count(*) FROM jobs") == 0
    again = await run_program("tenants", "purge", "t1", "--yes", settings=settings)
    assert (again.status, again.stdout) == (0, "there is nothing of this tenant\n")


async def test_what_is_left_is_told(api, capsys):
    await api.finish("nov")
    purging = TenantPurge(api.database, "t1")
    purging.run = lambda: TenantPurge.run(purging, no_wait, sweeps=1)
    async with api.database.transaction() as session:
        await session.connection.execute("SELECT FROM jobs FOR UPDATE")
        assert await tenants.erase(purging) == 1
    assert "NOT ALL: 1 jobs" in capsys.readouterr().err


async def test_a_database_that_is_away_is_1(capsys, monkeypatch):
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", "postgresql://nobody@127.0.0.1:1/none")
    assert await asyncio.to_thread(tenants.run, parse("purge", "t1", "--yes")) == 1
    monkeypatch.setenv("WEBHOOKD_DATABASE_URL", "nonsense")
    assert await asyncio.to_thread(tenants.run, parse("purge", "t1", "--yes")) == 2
