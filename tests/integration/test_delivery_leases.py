"""Leases, fencing, flags, holds, revisions, draining and outages."""

import asyncio
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from service.delivery.attempting import AttemptRules
from service.domain.attempts import Outcome, OutcomeClass, OwnFault
from service.sealing import Sealer
from service.store.database import Database
from service.store.deliveries import DeliveryStore
from service.store.statements import statement
from service.upkeep.rescue import CALM, Rescue
from tests.support.delivering import Queue, ShiftedClock, Watcher, deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive
from tests.support.scripted import Scripted
from tests.support.stores import Watched

OK = Outcome(OutcomeClass.DELIVERED, 204)
FAILED = Outcome(OutcomeClass.HTTP_ERROR, 500)
GONE = Outcome(OutcomeClass.GONE, 410)


@pytest.fixture
def sender():
    return Scripted()


async def start_one(queue, sender, **columns):
    hook = await queue.webhook("http://receiver.test/x")
    (delivery_id,) = await queue.deliveries(hook, **columns)
    await sender.wait()
    return hook, delivery_id


async def test_a_late_failure_is_refused_by_token(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        _, delivery_id = await start_one(queue, sender)
        await queue.execute("UPDATE deliveries SET lease_token = 42, attempts = 3")
        sender.end(FAILED)
        await queue.wait("attempts", "superfluous")
        row = await queue.live(delivery_id)
    assert (row["lease_token"], row["attempts"], row["state"]) == (42, 3, 0)


async def test_a_late_success_settles_whoever_holds_the_lease(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        _, delivery_id = await start_one(queue, sender)
        await queue.execute("UPDATE deliveries SET lease_token = 42")
        sender.end(OK)
        await queue.wait("deliveries_done", "state = 4")
        (attempt,) = await queue.attempts(delivery_id)
    assert attempt["superfluous"]


@pytest.mark.parametrize("state", [5, 6, 7])
async def test_a_late_success_settles_what_has_ended_otherwise(database, sender, state):
    async with Queue(database) as queue, deliver(database, sender=sender):
        _, delivery_id = await start_one(queue, sender, scope=0, batch_key=1)
        await queue.execute(
            """WITH d AS (DELETE FROM deliveries RETURNING *)
            INSERT INTO deliveries_done (delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope,
                batch_key, generation, state, attempts, created_at, first_due_at, finished_at)
            SELECT delivery_id, tenant_id, webhook_key, '', message_id, body_at, type, scope, batch_key, generation, $1,
                0, now(), now(), now() FROM d""",
            state,
        )
        sender.end(OK)
        await queue.wait("deliveries_done", "state = 4 AND delivery_id = $1", delivery_id)
        await queue.wait("attempts", "superfluous")


@pytest.mark.parametrize(
    ("flag", "reason", "table", "where"),
    [
        (1, None, "deliveries_done", "state = 6"),
        (2, "batch_deleted", "deliveries_done", "state = 7 AND reason = 'batch_deleted'"),
        (3, "paused", "deliveries", "state = 2 AND reason = 'paused' AND due_at IS NULL AND flag = 0"),
        (3, "disabled", "deliveries", "state = 2 AND reason = 'disabled' AND held_at IS NOT NULL"),
        (4, None, "deliveries", "attempts = 1 AND attempts_before = 1 AND state = 0 AND lease_token IS NOT NULL"),
    ],
)
async def test_a_flag_set_on_the_wire_decides_what_a_failure_leads_to(database, sender, flag, reason, table, where):
    async with Queue(database) as queue, deliver(database, sender=sender):
        _, delivery_id = await start_one(queue, sender)
        await queue.execute("UPDATE deliveries SET flag = $1, flag_reason = $2", flag, reason)
        sender.end(FAILED)
        await queue.wait(table, f"delivery_id = $1 AND {where}", delivery_id)
        await queue.wait("attempts", "outcome = 'http_error' AND NOT superfluous")


async def test_a_flag_does_not_matter_to_a_success(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        _, delivery_id = await start_one(queue, sender)
        await queue.execute("UPDATE deliveries SET flag = 1")
        sender.end(OK)
        await queue.wait("deliveries_done", "state = 4 AND delivery_id = $1", delivery_id)


@pytest.mark.parametrize("outcome", [OK, FAILED])
async def test_who_waits_for_a_delivery_is_due_when_it_has_left(database, sender, outcome):
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook, older = await start_one(queue, sender, group_key=5)
        (newer,) = await queue.deliveries(hook, group_key=5, generation=2)
        await queue.execute("UPDATE deliveries SET waits_for = $1, due_at = NULL WHERE delivery_id = $2", older, newer)
        await queue.execute("UPDATE deliveries SET flag = 1 WHERE delivery_id = $1", older)
        sender.end(outcome)
        await sender.wait()
        sender.end(OK)
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 4", newer)
        assert len(sender.requests) == 2


async def test_two_of_one_group_are_never_on_the_wire_together(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook = await queue.webhook("http://receiver.test/x", max_in_flight=5)
        await queue.deliveries(hook, 4, group_key=5)
        for left in (3, 2, 1, 0):
            await sender.wait()
            assert len(sender.open) == 1
            sender.end(OK)
            await queue.wait("deliveries_done", "state = 4", count=4 - left)
            await queue.execute("NOTIFY webhookd_due")


@pytest.mark.parametrize(("columns", "first"), [([{}] * 3, 0), ([{}, {"resume_state": 5}, {"resume_state": 5}], 1)])
async def test_claims_at_the_same_time_take_one_of_a_group(database, columns, first):
    """The first by id, redeliveries before others: they need not wait until a breaker lets those through."""
    call = statement("deliveries_claim"), [], [], 100, float("-inf"), "{}"
    async with Queue(database) as queue, Queue(database) as other:
        hook = await queue.webhook("http://receiver.test/x")
        ids = [(await queue.deliveries(hook, group_key=5, **each))[0] for each in columns]
        await queue.execute("UPDATE deliveries SET due_at = due_at - interval '1 second' * delivery_id")
        async with queue.connection.transaction():
            (row,) = await queue.connection.fetch(*call, 4, 500, 7, 60.0)
            assert row["delivery_id"] == ids[first]
            (none,) = await other.connection.fetch(*call, 4, 500, 8, 60.0)
            assert none["delivery_id"] is None
        (none,) = await other.connection.fetch(*call, 4, 500, 8, 60.0)
        assert none["delivery_id"] is None


@pytest.mark.parametrize("outcome", [OK, FAILED])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"generation": 2}, {"extra": 2, "attempts": 1, "attempts_before": 1}),
        ({"extra": 2}, {"generation": 2}),
        ({"resume_state": 5}, {"resume_state": 4}),
    ],
)
async def test_who_was_passed_by_for_another_of_its_work_follows_when_that_has_ended(
    database, sender, outcome, first, second
):
    """Without a survey, which would find it as well, some seconds later."""
    wrap = partial(Watched, lacks="list_lanes")
    async with Queue(database) as queue, deliver(database, sender=sender, wrap=wrap) as role:
        hook, ended = await start_one(queue, sender, group_key=5, **first)
        (passed,) = await queue.deliveries(hook, group_key=5, **second)
        await queue.shift(60, passed)
        looked_at = role.parts.intake.claimed_at
        await until(lambda: role.parts.intake.claimed_at > looked_at + 1)
        sender.end(outcome)
        await sender.wait()
        sender.end(OK)
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 4", passed)
        assert len(await queue.attempts(ended)) == 1


async def test_a_failed_redelivery_leaves_everything_as_it_was(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook = await queue.webhook("http://receiver.test/x")
        later = datetime.now(UTC) + timedelta(hours=1)
        (waits,) = await queue.deliveries(hook, attempts=2, resume_state=1, resume_due_at=later)
        await sender.wait()
        sender.end(FAILED)
        await queue.wait(
            "deliveries",
            "state = 1 AND attempts = 3 AND attempts_before = 1 AND resume_state IS NULL AND lease_token IS NULL",
        )
        row = await queue.live(waits)
        (was_done,) = await queue.deliveries(hook, resume_state=5, resume_reason="exhausted", state=0)
        await sender.wait()
        sender.end(FAILED)
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 5 AND reason = 'exhausted'", was_done)
        now = await queue.connection.fetchval("SELECT now()")
    assert row["due_at"] - now > timedelta(minutes=50)


async def test_a_test_message_ignores_a_pause_and_is_not_retried(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook = await queue.webhook("http://receiver.test/x", state=1)
        (test,) = await queue.deliveries(hook, extra=1, scope=2)
        await sender.wait()
        sender.end(FAILED)
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 5 AND reason = 'test_failed'", test)
        assert await queue.count("webhook_health", "health IS NOT NULL") == 0


@pytest.mark.parametrize(("state", "word"), [(1, "paused"), (2, "disabled")])
async def test_a_stopped_webhook_found_at_the_claim_holds_its_deliveries(database, sender, state, word):
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook = await queue.webhook("http://receiver.test/x", state=state, state_reason="gone")
        await queue.deliveries(hook, 3)
        await queue.wait("deliveries", "state = 2 AND reason = $1 AND lease_token IS NULL", word, count=3)
        assert sender.requests == []


async def test_no_signing_key_and_undecryptable_are_held(database, sender):
    other = Sealer([("k2", b"\x09" * 32)])
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        (unsigned,) = await queue.deliveries(await queue.webhook("http://receiver.test/x", secret=None))
        (sealed,) = await queue.deliveries(await queue.webhook("http://receiver.test/y", sealer=other))
        await queue.wait("deliveries", "reason = 'no_signing_key' AND delivery_id = $1", unsigned)
        await queue.wait("deliveries", "reason = 'undecryptable' AND delivery_id = $1", sealed)
    assert sender.requests == []
    assert role.watcher.faults == ["key_store"]  # operators are alerted, once a delivery
    (told,) = [fields for event, fields in role.watcher.events if event == "own_fault"]
    assert (told["kind"], told["delivery_id"], told["attempt"]) == ("key_store", f"dlv_{sealed}", 1)
    assert told["webhook_id"]


async def test_an_unexpected_exception_costs_one_delivery(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        _, delivery_id = await start_one(queue, sender)
        sender.end(RuntimeError("a bug"))
        await queue.wait("deliveries", "state = 2 AND reason = 'internal_error' AND attempts = 0")
        assert await queue.attempts(delivery_id) == []
    assert role.watcher.faults == ["internal_error"]


@pytest.mark.parametrize(
    ("outcome", "event"),
    [
        (OK, "attempt"),
        (FAILED, "attempt_failed"),
        (RuntimeError("a bug"), "internal_error"),
        (OwnFault("file_descriptors"), "own_fault"),
    ],
)
async def test_log_lines_name_a_delivery_as_the_api_does(database, sender, outcome, event):
    async with Queue(database) as queue, deliver(database, sender=sender, rules=AttemptRules(sample=1)) as role:
        _, delivery_id = await start_one(queue, sender)
        sender.end(outcome)
        await until(lambda: any(name == event for name, _ in role.watcher.events))
    (fields,) = (fields for name, fields in role.watcher.events if name == event)
    assert fields["delivery_id"] == f"dlv_{delivery_id}"
    assert all(f["delivery_id"].startswith("dlv_") for _, f in role.watcher.events if "delivery_id" in f)
    if event.startswith("attempt"):
        assert {"message_id", "webhook_id", "tenant_id", "attempt", "outcome"} <= fields.keys()
        assert fields["attempt"] == 1


async def test_our_own_fault_spends_no_retry(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        _, delivery_id = await start_one(queue, sender)
        sender.end(OwnFault("file_descriptors"))
        await queue.wait("deliveries", "lease_token IS NULL AND due_at > now() AND attempts = 0 AND state = 0")
        assert await queue.attempts(delivery_id) == []
    assert role.watcher.faults == ["file_descriptors"]


async def test_a_body_that_is_gone_is_not_sent(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook = await queue.webhook("http://receiver.test/x", state=1)
        (delivery_id,) = await queue.deliveries(hook)
        await queue.wait("deliveries", "state = 2")
        await queue.execute("DELETE FROM message_bodies")
        await queue.execute("UPDATE webhooks SET state = 0, revision = 2, changed_at = now()")
        await queue.execute("UPDATE deliveries SET state = 0, due_at = now()")
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 7 AND reason = 'body_gone'", delivery_id)


async def test_a_changed_revision_sends_waiting_deliveries_back_and_spares_the_webhook(database, sender):
    """The engine's half of trace 6: nothing more to the old URL, and its late 410 changes nothing."""
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook, first = await start_one(queue, sender)
        await queue.deliveries(hook, 3)
        await until(lambda: role.parts.slots.waiting == 3)
        await queue.change_url(hook, "http://new.test/y")
        await until(lambda: role.parts.catalog.find(hook).revision == 2)
        sender.end(GONE)
        await queue.wait("attempts", "superfluous AND outcome = 'gone'")
        for _ in range(3):
            await sender.wait()
            sender.end(OK)
        await queue.wait("deliveries_done", "state = 4", count=3)
        assert await queue.count("webhooks", "state = 0") == 1
        assert (await queue.live(first))["state"] == 1
    assert [request.target.host for request, _ in sender.requests] == ["receiver.test", *["new.test"] * 3]


async def test_buffered_leases_are_renewed_and_then_handed_back(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook, first = await start_one(queue, sender)
        await queue.deliveries(hook, 2)
        await until(lambda: role.parts.slots.waiting == 2)
        claimer = role.parts.intake.claimer
        before = await queue.connection.fetchval(
            "SELECT min(lease_until) FROM deliveries WHERE delivery_id <> $1", first
        )
        role.clock.added = 35.0
        await claimer.keep_leases()
        after = await queue.connection.fetchval(
            "SELECT min(lease_until) FROM deliveries WHERE delivery_id <> $1", first
        )
        assert after > before
        assert role.parts.slots.waiting == 2
        await queue.execute("UPDATE deliveries SET flag = 2, flag_reason = 'by_request' WHERE delivery_id <> $1", first)
        role.clock.added = 90.0
        await claimer.keep_leases()
        await queue.wait("deliveries_done", "state = 7", count=2)


async def test_an_attempt_that_its_lease_does_not_cover_does_not_start(database, sender):
    rules = AttemptRules(margin=10.0)
    async with Queue(database) as queue, deliver(database, sender=sender, lease=60.0, rules=rules) as role:
        hook, _ = await start_one(queue, sender)
        await queue.deliveries(hook, 1)
        await until(lambda: role.parts.slots.waiting == 1)
        role.clock.added = 40.0  # as after a SIGSTOP: 20 s are left, 15 + 10 are needed
        sender.end(OK)
        await queue.wait("deliveries_done", "state = 4")
        await sender.wait()
        (_, first), (_, second) = sender.requests
        assert await queue.count("attempts") == 1
    assert second - first > 30  # under a new lease


async def test_a_stop_hands_back_what_waits_and_lets_attempts_end(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender, drain=60.0) as role:
        hook, first = await start_one(queue, sender)
        await queue.deliveries(hook, 3)
        await until(lambda: role.parts.slots.waiting == 3)
        role.stop.set()
        await queue.wait("deliveries", "lease_token IS NULL AND attempts = 0", count=3)
        sender.end(OK)
        await role.task
        assert await queue.count("deliveries_done", "state = 4 AND delivery_id = $1", first) == 1
        assert len(sender.requests) == 1


async def test_a_stop_hands_back_what_a_claim_has_leased_that_was_not_answered_yet(database, sender):
    late = partial(Watched, late=True)
    async with Queue(database) as queue, deliver(database, sender=sender, wrap=late) as role:
        await queue.deliveries(await queue.webhook("http://receiver.test/x"), 3)
        await role.store.claimed.wait()
        role.stop.set()
        await asyncio.sleep(0)
        role.store.answer.set()
        await role.task
        assert await queue.count("deliveries", "lease_token IS NULL") == 3


async def test_what_was_claimed_is_handed_back_if_its_webhooks_cannot_be_loaded(database, sender):
    cut = """SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE wait_event_type = 'Lock' AND query LIKE '%signing_secrets%' AND datname = current_database()"""
    async with Queue(database) as queue, Queue(database) as other, deliver(database, sender=sender) as role:
        await until(role.parts.engine.may_send)
        async with other.connection.transaction():
            await other.execute("LOCK TABLE tenants")  # which a webhook is loaded with
            await queue.deliveries(await queue.webhook("http://receiver.test/x"), 3)
            await queue.wait("deliveries", "lease_token IS NOT NULL", count=3)
            async with asyncio.timeout(20):
                while not await queue.connection.fetchval(cut):
                    await asyncio.sleep(0.01)
            await queue.wait("deliveries", "lease_token IS NULL AND attempts = 0", count=3)
        for _ in range(3):
            await sender.wait()
            sender.end(OK)
        await queue.wait("deliveries_done", "state = 4", count=3)


async def test_attempts_over_the_drain_budget_are_cut_and_handed_back(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender, drain=0.2) as role:
        await start_one(queue, sender)
        await role.end()
        assert await queue.count("deliveries", "lease_token IS NULL AND attempts = 0 AND state = 0") == 1


async def test_outcomes_wait_while_the_database_is_away(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender, wrap=Watched) as role:
        hook, _ = await start_one(queue, sender)
        await queue.deliveries(hook, 3)
        await until(lambda: role.parts.slots.waiting == 3)
        role.store.away = True
        sender.end(OK)
        await until(lambda: role.parts.recorder.away)
        assert role.parts.recorder.unrecorded == 1
        started = len(sender.requests)
        role.parts.engine._crew.wake()
        await asyncio.sleep(0)
        assert len(sender.requests) == started  # nothing starts
        role.store.away = False
        await queue.wait("deliveries_done", "state = 4")
        await sender.wait()


async def test_nothing_starts_on_stale_knowledge(database, sender):
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook, _ = await start_one(queue, sender)
        await queue.deliveries(hook, 1)
        await until(lambda: role.parts.slots.waiting == 1)
        role.parts.catalog.fresh_until = float("-inf")
        assert not role.parts.engine.may_send()
        sender.end(OK)
        await sender.wait()  # the next refresh opens it again


async def test_expired_leases_are_rescued_once_the_database_is_calm(database, sender):
    async with Queue(database) as queue, Database(database) as db:
        hook = await queue.webhook("http://receiver.test/x")
        rows = await queue.deliveries(hook, 4)
        await queue.execute("UPDATE deliveries SET lease_token = 7, lease_until = now() - interval '1 s'")
        await queue.execute("UPDATE deliveries SET flag = 1 WHERE delivery_id = $1", rows[0])
        await queue.execute("UPDATE deliveries SET flag = 3, flag_reason = 'paused' WHERE delivery_id = $1", rows[1])
        await queue.execute(
            "UPDATE deliveries SET lease_until = now() + interval '1 h' WHERE delivery_id = $1", rows[2]
        )
        watcher, clock = Watcher(), ShiftedClock()
        rescue = Rescue(DeliveryStore(db), clock, watcher)
        await rescue.run_once()
        assert watcher.expired == 0
        clock.added = CALM
        await rescue.run_once()
        assert watcher.expired == 3
        assert (await queue.done(rows[0]))["state"] == 6
        held, leased, free = [await queue.live(row) for row in rows[1:]]
    assert (held["state"], held["reason"], held["due_at"]) == (2, "paused", None)
    assert leased["lease_token"] == 7
    assert (free["lease_token"], free["attempts"], free["due_at"] is not None) == (None, 0, True)


async def test_two_engines_share_the_work_without_sending_twice(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue:
        hooks = [await queue.webhook(receiver.url(), tenant_id=f"t{n}") for n in range(20)]
        async with deliver(database) as one, deliver(database) as two:
            for hook in hooks:
                await queue.deliveries(hook, 20)
            await queue.wait("deliveries_done", "state = 4", count=400)
            await until(lambda: one.parts.catalog.processes == 2)
        counts = (one.watcher.finished["delivered"], two.watcher.finished["delivered"])
    assert len({request.get("webhook-id") for request in receiver.requests}) == len(receiver.requests) == 400
    assert sum(counts) == 400


async def test_a_rate_limit_is_global(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue:
        hook = await queue.webhook(receiver.url(), rate_limit=10)
        async with deliver(database), deliver(database):
            await queue.deliveries(hook, 14)
            await queue.wait("deliveries_done", "state = 4", count=14)
            first, last = await queue.connection.fetchrow("SELECT min(started_at), max(started_at) FROM attempts")
        assert len(receiver.requests) == 14
    assert (last - first).total_seconds() >= 0.3  # ten at once, then ten a second
