"""What is older than RETENTION_STATE is forgotten, whole: nothing that is in use, and no half of anything."""

import asyncio
from collections import Counter
from datetime import timedelta

import pytest

from service.ports import StoreUnavailable
from service.store import state_walks
from service.store.state_pruning import StatePruning
from service.store.state_walks import BatchWalk, Cut, JobWalk, MessageWalk, WebhookWalk
from service.store.statements import statement
from tests.support.api import URL_1, URL_2, running_api

KEPT, MESSAGES = timedelta(days=400), timedelta(days=90)
STATE = ("batches", "batch_delivered", "batch_leavers", "jobs", "messages", "message_bodies")
SHIFTED = ("batches", "jobs", "messages", "message_bodies", "deliveries", "webhooks", "webhook_health")
ONE_SHOT = {"webhook_url": URL_2}


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


async def prune(api):
    """One round of a new leader; return what it says it forgot."""
    told = []
    await StatePruning(api.database, api.clock, KEPT, MESSAGES, told.append).run_once()
    return told[0] if told else Counter()


def cut(api):
    now = api.clock.now()
    return Cut(now, now - KEPT, now - KEPT)


async def walk(walking, api):
    """One pass."""
    pruned = Counter()
    while True:
        taken = await walking.take(cut(api))
        pruned.update(taken.pruned)
        if not taken.more:
            return +pruned


async def age(api, days=401, tables=SHIFTED, where="true"):
    """Let time pass over the rows; bodies stay in the partition that their message names."""
    for table in tables:
        columns = await api.fetch(
            """SELECT attname FROM pg_attribute AS a WHERE attrelid = $1::text::regclass AND attnum > 0
            AND atttypid = 'timestamptz'::regtype AND attname <> 'body_at'""",
            table,
        )
        if moved := ", ".join(f"{c[0]} = {c[0]} - interval '{days} days'" for c in columns):
            await api.fetch(f"UPDATE {table} SET {moved} WHERE {where}")


async def deliver_all(api):
    """Everything was delivered, and the history's partitions have been dropped since."""
    await api.conclude()
    await api.fetch("DELETE FROM deliveries_done")


async def count(api, *tables):
    return {table: await api.value(f"SELECT count(*) FROM {table}") for table in tables or STATE}


async def fill(api):
    """A batch with a webhook, a leaver and two finishes; a job of its own; a retired webhook; a test message."""
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov", "a", "b")
    await api.send(api.event("job.removed", "b", "nov"))
    await api.finish("nov", "c")
    await api.post("/v1/webhooks", {"url": URL_1, "id": "w", "event_types": ["*"]})
    await api.send(api.event("job.completed", "alone", status="succeeded", webhook_id="w"))
    await api.send(api.event("job.completed", "alone", status="failed", generation=2, webhook_id="w"))
    await api.send(api.event("job.queued", "waits"))
    await api.post("/v1/batches/nov/webhook/test")
    await deliver_all(api)
    await api.delete("/v1/webhooks/w")


async def test_every_table_is_forgotten_and_says_so(api):
    await fill(api)
    assert min((await count(api)).values()) > 0
    assert await prune(api) == {}
    await age(api)
    pruned = await prune(api)
    assert set((await count(api, *STATE, "webhooks", "webhook_health")).values()) == {0}
    assert {**pruned} == {"messages": 5, "batches": 1, "jobs": 5, "webhooks": 2}


async def test_just_younger_stays(api):
    await fill(api)
    before = await count(api)
    await age(api, days=399)
    assert await prune(api) == {} and await count(api) == before


async def test_an_unfinished_batch_that_nobody_has_touched_is_forgotten(api):
    await api.send(api.event("job.queued", "a", "nov"))
    await api.put("/v1/batches/early/webhook", {"url": URL_1})
    await age(api)
    await prune(api)
    assert set((await count(api, *STATE, "webhooks")).values()) == {0}


@pytest.mark.parametrize(
    "use",
    [
        "UPDATE batches SET updated_at = now()",
        "UPDATE jobs SET updated_at = now()",
        "UPDATE webhooks SET changed_at = now()",
        "UPDATE messages SET created_at = now()",
        "INSERT INTO webhook_health (webhook_key) SELECT webhook_key FROM webhooks",
        (
            "INSERT INTO replays (tenant_id, webhook_key, webhook_id, which, since, until, rate, phase, created_by)"
            " SELECT tenant_id, webhook_key, webhook_id, 'failed', now(), now(), 1, 'finished', '' FROM webhooks"
        ),
    ],
)
async def test_a_batch_that_is_used_keeps_everything(api, use):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov", "a")
    await deliver_all(api)
    await age(api)
    await api.fetch(use)
    before = await count(api)
    await prune(api)
    assert await count(api) == before


@pytest.mark.parametrize("state", [0, 1, 2])
@pytest.mark.parametrize("batch", ["nov", None])
async def test_what_is_queued_keeps_its_message_job_batch_and_webhook(api, state, batch):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1, "notify_if_done": False})
    await api.send(api.event("job.completed", "a", batch, status="succeeded", **ONE_SHOT))
    if batch is None:
        await api.finish("nov", "b")
    await api.fetch("UPDATE deliveries SET state = $1, due_at = NULL", state)
    await age(api)
    tables = ("deliveries", "webhooks", "jobs", "batches", "messages", "message_bodies")
    before = await count(api, *tables)
    assert before["deliveries"] > 0
    await prune(api)
    assert await count(api, *tables) == before


async def test_history_keeps_what_it_can_send_again(api):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov")
    await api.send(api.event("job.completed", "alone", status="succeeded", **ONE_SHOT))
    await api.conclude(state=5, reason="exhausted")
    await age(api)
    before = await count(api)
    await prune(api)
    assert await count(api) == before
    assert [d["state"] for d in await api.deliveries()] == ["failed", "failed"]
    for delivery in await api.deliveries():
        assert (await api.post(f"/v1/deliveries/{delivery['delivery_id']}/redeliver")).status == 202


async def test_messages_are_kept_for_their_own_retention_and_their_work_with_them(api):
    await api.finish("nov")
    await age(api, days=60)
    state = timedelta(days=30)
    await StatePruning(api.database, api.clock, state, MESSAGES).run_once()
    assert (await count(api, "jobs", "batches", "messages")) == {"jobs": 1, "batches": 1, "messages": 1}
    await age(api, days=31)
    await StatePruning(api.database, api.clock, state, MESSAGES).run_once()
    assert set((await count(api)).values()) == {0}


async def test_a_later_event_begins_anew_and_is_delivered_once(api):
    async def happen():
        await api.put("/v1/batches/nov/webhook", {"url": URL_1})
        await api.finish("nov", "a")
        await api.send(api.event("job.completed", "alone", status="succeeded", **ONE_SHOT))
        return sorted(row[0] for row in await api.fetch("SELECT message_id FROM deliveries"))

    first = await happen()
    await deliver_all(api)
    await age(api)
    await prune(api)
    assert (await api.get("/v1/batches/nov")).status == 404
    assert await happen() == first and len(first) == 2, "the same work has the same ids"
    await api.send(api.event("job.completed", "a", "nov", status="succeeded"))
    await use_one_shot(api)
    assert await count(api, "jobs", "batches", "messages", "deliveries") == {
        "jobs": 2,
        "batches": 1,
        "messages": 2,
        "deliveries": 2,
    }
    assert (await api.get("/v1/batches/nov")).json["generation"] == 1


async def test_a_long_living_batch_and_job_forget_only_what_was_overtaken(api):
    await api.finish("nov", "a")
    await api.send(api.event("job.completed", "alone", status="succeeded", **ONE_SHOT))
    await deliver_all(api)
    await age(api)
    await api.finish("nov", "b")
    await api.send(api.event("job.completed", "alone", status="failed", generation=2, **ONE_SHOT))
    await deliver_all(api)
    assert await prune(api) == {"messages": 2}
    newest = await api.value("SELECT finish_message_id FROM batches")
    assert (await api.get(f"/v1/messages/{newest}")).status == 200
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    assert await api.value("SELECT message_id FROM deliveries") == newest
    await api.fetch("UPDATE messages SET created_at = now() - interval '401 days'")
    assert await prune(api) == {}


async def test_the_newest_incarnation_of_a_name_goes_last(api):
    await api.send(api.event("job.queued", "a", batch=None) | {"batch": {"name": "nov", "id": "one"}})
    await api.send(api.event("job.queued", "b", batch=None) | {"batch": {"name": "nov", "id": "two"}})
    await age(api)
    await api.fetch("UPDATE batches SET updated_at = now() WHERE seq = 1")
    assert await prune(api) == {}
    await age(api, tables=("batches",), where="seq = 1")
    assert (await prune(api))["batches"] == 1 and await api.value("SELECT seq FROM batches") == 2
    assert (await prune(api))["batches"] == 1


# Pages


async def test_jobs_are_walked_page_by_page_past_those_that_stay(api):
    for number in range(9):
        await api.send(api.event("job.completed", f"j{number}", status="succeeded", **ONE_SHOT))
    await api.conclude(where="job_id <> 'j1'")
    await api.fetch("DELETE FROM deliveries_done")
    await age(api)
    assert await walk(JobWalk(api.database, KEPT, per_page=2), api) == {"jobs": 8, "messages": 8}
    assert [row[0] for row in await api.fetch("SELECT job_id FROM jobs")] == ["j1"]


async def test_batches_messages_and_webhooks_are_walked_page_by_page(api):
    for number in range(5):
        await api.put(f"/v1/batches/b{number}/webhook", {"url": URL_1})
        await api.finish(f"b{number}", *(f"j{number}-{member}" for member in range(3)))
        await api.finish(f"b{number}", f"late-{number}")
        await api.as_tenant("t2").finish(f"b{number}", f"j{number}")
    await deliver_all(api)
    await age(api)
    assert await walk(MessageWalk(api.database, per_page=2), api) == {"messages": 5}
    pruned = await walk(BatchWalk(api.database, at_once=2, per_page=2), api)
    assert pruned == {"batches": 10, "webhooks": 5, "messages": 10, "jobs": 25}
    for name in ("x", "y", "z"):
        await api.post("/v1/webhooks", {"url": URL_1, "id": name})
        await api.delete(f"/v1/webhooks/{name}")
    await age(api)
    assert await walk(WebhookWalk(api.database, per_page=2), api) == {"webhooks": 3}


async def test_a_pass_ends_at_the_first_young_row_and_rests(api, monkeypatch):
    for number in range(4):
        await api.send(api.event("job.queued", f"j{number}", f"b{number}"))
    walking = BatchWalk(api.database, at_once=2)
    assert not (await walking.take(cut(api))).more
    looked = Counter()

    async def take(walking, _):
        looked[type(walking)] += 1
        return state_walks.Taken(Counter(), more=False)

    for kind in (MessageWalk, BatchWalk, JobWalk, WebhookWalk):
        monkeypatch.setattr(kind, "take", take)
    pruning = StatePruning(api.database, api.clock, KEPT, MESSAGES)
    for _ in range(3):
        await pruning.run_once()
        api.clock.added += 60
    assert looked == {MessageWalk: 1, BatchWalk: 1, JobWalk: 3, WebhookWalk: 1}
    api.clock.added += KEPT.total_seconds() / 100
    await pruning.run_once()
    assert looked == {MessageWalk: 2, BatchWalk: 2, JobWalk: 4, WebhookWalk: 2}


async def test_a_round_has_its_time(api, monkeypatch):
    rounds = []

    async def take(_, __):
        rounds.append(1)
        api.clock.added += 3
        return state_walks.Taken(Counter(jobs=1))

    for kind in (MessageWalk, BatchWalk, JobWalk, WebhookWalk):
        monkeypatch.setattr(kind, "take", take)
    told = []
    await StatePruning(api.database, api.clock, KEPT, MESSAGES, told.append).run_once()
    assert len(rounds) == 16 and told == [{"jobs": 16}]


async def test_no_statement_reads_a_table_for_a_page_of_it(api):
    await fill(api)
    async with api.database.session() as session:
        plans = {}
        for name, arguments in (
            ("prune_jobs_lock", "'(0,0)', '(64,0)', now(), 500"),
            ("prune_jobs_lock_members", "'{1}', now(), 500"),
            ("prune_batches_page", "0, 100, now()"),
            ("prune_messages_page", "'t1', now(), now(), '', 500"),
            ("prune_messages_tenants", "'', now(), 100"),
            ("prune_webhooks_page", "0, 500, now(), now()"),
            ("prune_batches", "'{1}', '{}', '{}', now(), now()"),
            ("prune_jobs", "'{t1}', '{a}', '{}', now()"),
            ("prune_messages", "'{a}'"),
            ("prune_webhooks", "'{1}', now(), now()"),
            ("prune_webhooks_mark", "'{1}', now(), now()"),
        ):
            await session.connection.execute(f"PREPARE {name} AS {statement(name)}")
            rows = await session.connection.fetch(f"EXPLAIN EXECUTE {name} ({arguments})")
            plans[name] = "\n".join(row[0] for row in rows)
            assert "Seq Scan" not in plans[name] and "hashed" not in plans[name], plans[name]
            await session.connection.execute(f"DEALLOCATE {name}")
    assert "Tid Range Scan on jobs" in plans["prune_jobs_lock"], plans["prune_jobs_lock"]
    assert "jobs_of_batch" in plans["prune_jobs_lock_members"]
    assert "messages_listed" in plans["prune_messages_page"] and "messages_listed" in plans["prune_messages_tenants"]


# Beside others


class Gate:
    """Lets a walk hold its locks until it is opened."""

    def __init__(self, monkeypatch, kind, name):
        self.held, self.open = asyncio.Event(), asyncio.Event()
        original = getattr(kind, name)

        async def gated(*arguments, **named):
            result = await original(*arguments, **named)
            self.held.set()
            await self.open.wait()
            return result

        monkeypatch.setattr(kind, name, gated)

    async def let_through(self, api, walking, arriving):
        """Start the walk, start what arrives, open when that waits for a lock; return what it came to."""
        async with asyncio.TaskGroup() as group:
            group.create_task(walk(walking, api))
            await self.held.wait()
            arrival = group.create_task(arriving)
            while not await api.value("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await asyncio.sleep(0.01)
            self.open.set()
        return arrival.result()


async def make_old(api):
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    await api.finish("nov", "a")
    await deliver_all(api)
    await age(api)


async def test_an_event_that_meets_the_deletion_of_its_batch_begins_anew(api, monkeypatch):
    await make_old(api)
    gate = Gate(monkeypatch, BatchWalk, "_prune")
    await gate.let_through(api, BatchWalk(api.database), api.finish("nov", "a"))
    assert await count(api, "batches", "messages", "webhooks") == {"batches": 1, "messages": 1, "webhooks": 0}
    assert (await api.get("/v1/batches/nov")).json["generation"] == 1
    await api.put("/v1/batches/nov/webhook", {"url": URL_1})
    assert await api.value("SELECT count(*) FROM deliveries") == 1


async def test_an_event_that_meets_the_deletion_of_its_job_begins_anew(api, monkeypatch):
    done = api.event("job.completed", "alone", status="succeeded", **ONE_SHOT)
    await api.send(done)
    await deliver_all(api)
    await age(api, tables=("jobs", "messages"))
    gate = Gate(monkeypatch, state_walks, "_prune_jobs")
    assert (await gate.let_through(api, JobWalk(api.database, KEPT), api.send(done)))[0]["outcome"] == "applied"
    assert await count(api, "jobs", "messages", "deliveries") == {"jobs": 1, "messages": 1, "deliveries": 1}


async def test_a_put_and_a_renotify_that_meet_the_deletion_find_no_batch(api, monkeypatch):
    await make_old(api)
    gate = Gate(monkeypatch, BatchWalk, "_prune")
    put = api.put("/v1/batches/nov/webhook", {"url": URL_2})
    assert (await gate.let_through(api, BatchWalk(api.database), put)).status == 201
    assert await count(api, "batches", "webhooks", "deliveries") == {"batches": 1, "webhooks": 1, "deliveries": 0}
    await api.finish("nov", "a")
    assert await api.value("SELECT count(*) FROM deliveries") == 1
    await deliver_all(api)
    await age(api)
    monkeypatch.undo()
    gate = Gate(monkeypatch, BatchWalk, "_prune")
    again = await gate.let_through(api, BatchWalk(api.database), api.post("/v1/batches/nov/renotify"))
    assert again.status == 404 and await api.value("SELECT count(*) FROM deliveries") == 0


async def test_a_test_send_that_meets_the_deletion_queues_nothing(api, monkeypatch):
    await make_old(api)
    gate = Gate(monkeypatch, BatchWalk, "_prune")
    sending = api.post("/v1/batches/nov/webhook/test")
    assert (await gate.let_through(api, BatchWalk(api.database), sending)).code == "not_found"
    assert await count(api, "webhooks", "deliveries", "messages") == {"webhooks": 0, "deliveries": 0, "messages": 0}


@pytest.mark.parametrize("table", ["batches", "webhooks", "messages"])
async def test_what_somebody_holds_stays_whole(api, table):
    await make_old(api)
    before = await count(api)
    async with api.database.transaction() as session:
        await session.connection.execute(f"SELECT FROM {table} FOR UPDATE")
        assert await walk(BatchWalk(api.database), api) == {}
    assert await count(api) == before
    assert (await walk(BatchWalk(api.database), api))["batches"] == 1


async def test_members_that_are_left_behind_are_known_as_jobs_and_swept_later(api, monkeypatch):
    await api.finish("nov", "a", "b", "c")
    await deliver_all(api)
    await age(api)

    original, calls = state_walks._prune_jobs, []

    async def die(*arguments):
        calls.append(1)
        if len(calls) > 1:
            raise StoreUnavailable("killed")
        return await original(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(state_walks, "_prune_jobs", die)
        with pytest.raises(StoreUnavailable):
            await walk(BatchWalk(api.database, per_page=1), api)
    left = [row[0] for row in await api.fetch("SELECT job_id FROM jobs ORDER BY 1")]
    assert len(left) == 2 and (await count(api, "batches"))["batches"] == 0
    one, two = left
    assert (await api.get(f"/v1/jobs/{one}")).json["batch"] is None
    await api.send(api.event("job.completed", one, "nov", status="succeeded") | {"batch": {"name": "nov", "total": 1}})
    batch = (await api.get("/v1/batches/nov")).json
    assert (batch["generation"], batch["counts"]["total"], batch["all_done"]) == (1, 1, True)
    assert await walk(JobWalk(api.database, KEPT), api) == {"jobs": 1}
    assert [row[0] for row in await api.fetch("SELECT job_id FROM jobs")] == [one], two


async def test_several_leaders_and_events_at_once(api):
    for number in range(12):
        await api.finish(f"b{number}", f"j{number}", f"k{number}")
        await api.send(api.event("job.completed", f"alone-{number}", status="succeeded", **ONE_SHOT))
    await deliver_all(api)
    await age(api)

    async def arrive(number):
        for _ in range(3):
            done = api.event("job.completed", f"j{number}", status="succeeded")
            await api.send(done | {"batch": {"name": f"b{number}", "total": 1}})
            await api.send(api.event("job.completed", f"alone-{number}", status="succeeded", **ONE_SHOT))

    await asyncio.gather(*(prune(api) for _ in range(3)), *(arrive(number) for number in range(4)))
    await prune(api)
    assert await api.value("SELECT count(*) FROM dead_letters") == 0
    assert await api.value("SELECT count(*) FROM batches") == 4
    live = "(SELECT batch_key FROM batches)"
    assert await api.value(f"SELECT count(*) FROM jobs WHERE batch_key NOT IN {live}") == 0
    assert await api.value("SELECT count(*) FROM jobs WHERE batch_key IS NULL") == 4
    lost = "SELECT count(*) FROM batches WHERE NOT EXISTS (SELECT FROM messages WHERE message_id = finish_message_id)"
    assert await api.value(lost) == 0


async def test_a_message_that_is_held_keeps_its_batch_and_one_that_is_gone_cannot_be_held(api):
    await api.finish("nov", "a")
    await age(api)
    message_id = await api.value("SELECT message_id FROM messages")
    async with api.database.transaction() as session:
        assert len(await session.fetch("messages_hold", [message_id])) == 1
        assert await walk(BatchWalk(api.database), api) == {}
    await walk(BatchWalk(api.database), api)
    async with api.database.transaction() as session:
        assert await session.fetch("messages_hold", [message_id]) == []


# Hidden webhooks


async def use_one_shot(api, job_id="alone"):
    await api.send(api.event("job.completed", job_id, status="succeeded", **ONE_SHOT))


async def test_a_hidden_webhook_is_marked_then_forgotten(api):
    await use_one_shot(api)
    await deliver_all(api)
    await age(api)
    assert "webhooks" not in await prune(api)
    assert await api.value("SELECT count(*) FROM webhooks WHERE idle_at IS NOT NULL") == 1
    assert await prune(api) == {}, "the mark is too young to act upon"
    api.clock.added = 3_601
    assert await prune(api) == {"webhooks": 1}
    await use_one_shot(api)
    assert await count(api, "webhooks", "deliveries") == {"webhooks": 1, "deliveries": 1}


@pytest.mark.parametrize("change", ["state = 1", "created_at = now()"])
async def test_a_paused_or_young_hidden_webhook_is_not_marked(api, change):
    await use_one_shot(api)
    await deliver_all(api)
    await age(api)
    await api.fetch(f"UPDATE webhooks SET {change}")
    await prune(api)
    assert await api.value("SELECT count(*) FROM webhooks WHERE idle_at IS NULL") == 1


async def test_use_takes_the_mark_off(api):
    await use_one_shot(api)
    await deliver_all(api)
    await age(api)
    await prune(api)
    await use_one_shot(api, "next")
    assert await api.value("SELECT count(*) FROM webhooks WHERE idle_at IS NULL") == 1
    api.clock.added = 3_601
    await prune(api)
    assert await count(api, "webhooks", "deliveries") == {"webhooks": 1, "deliveries": 1}


async def test_use_that_meets_the_deletion_makes_another(api, monkeypatch):
    await use_one_shot(api)
    await deliver_all(api)
    await age(api)
    await prune(api)
    api.clock.added = 3_601
    key = await api.value("SELECT webhook_key FROM webhooks")
    gate = Gate(monkeypatch, WebhookWalk, "_forget")
    await gate.let_through(api, WebhookWalk(api.database), use_one_shot(api, "next"))
    assert await api.value("SELECT webhook_key FROM deliveries") > key
