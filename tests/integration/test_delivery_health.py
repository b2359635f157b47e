"""Breaker, recovery, disabling, and the short way from ingest to the wire."""

from datetime import timedelta

import pytest

from service.delivery.attempting import AttemptRules
from service.delivery.claiming import RECENT
from service.delivery.ready import ReadyDelivery
from service.domain.attempts import Outcome, OutcomeClass
from service.domain.health import Breaker, Health, HealthRules
from service.store.codes import WebhookKind
from service.store.health import dump_health, read_health
from tests.support.delivering import Queue, build_defaults, deliver, until
from tests.support.receivers import NO_CONTENT, answering, receive
from tests.support.releasing import run_release
from tests.support.scripted import Scripted
from tests.support.stores import Watched

FAILED = Outcome(OutcomeClass.HTTP_ERROR, 500)
OK = Outcome(OutcomeClass.DELIVERED, 204)
SHARED = -77  # a lane of one-shots; that of a single webhook has the number of its row
RULES = HealthRules(open_failures=3, open_after=timedelta(0), probe_base=timedelta(seconds=600))


async def test_health_survives_its_stored_form(database):
    async with Queue(database) as queue:
        now = await queue.now()
    health = Health(now, now, 3, now, 1, 5, Breaker.OPEN, 2, now, 4)
    assert read_health(dump_health(health)) == health
    assert read_health(None) is None


async def test_a_breaker_opens_and_what_waits_stays_untouched(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender, defaults=build_defaults(rules=RULES)) as role:
        hook = await queue.webhook("http://receiver.test/x")
        await queue.deliveries(hook, 8)
        for _ in range(3):
            await sender.wait()
            sender.end(FAILED)
        await queue.wait("webhook_health", "breaker = 1 AND probe_at > now() + interval '500 seconds'")
        await queue.wait("deliveries", "lease_token IS NULL", count=8)
        assert await queue.count("deliveries", "attempts = 0 AND state = 0") == 5
        await until(lambda: role.parts.catalog.unwell_lanes == {hook})
        await queue.deliveries(hook, 1)
        assert len(sender.requests) == 3


@pytest.mark.parametrize("known", [True, False])
async def test_an_extra_attempt_waits_for_no_breaker(database, known):
    """A test and a redelivery go out at once; when the latter is accepted, the schedule begins again, step by step."""
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/x", max_in_flight=50)
        now = await queue.now()
        health = Health(
            now - timedelta(hours=1), now, 9, now, breaker=Breaker.OPEN, probe_at=now + timedelta(minutes=5)
        )
        if known:
            await role.parts.catalog.reload([hook])
        await queue.store_health(hook, health)
        if known:
            await until(lambda: role.parts.catalog.unwell_lanes == {hook})
        await queue.deliveries(hook, 5)
        (trial,) = await queue.deliveries(hook, extra=1)
        await sender.wait()
        assert len(sender.open) == 1
        sender.end(FAILED)
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 5", trial)
        (again,) = await queue.deliveries(hook, state=1, resume_state=1, attempts=2)
        await sender.wait()
        assert await queue.count("deliveries", "attempts = 0") == 5
        sender.end(OK)
        await queue.wait("deliveries_done", "delivery_id = $1 AND state = 4", again)
        await sender.wait(2)


@pytest.mark.parametrize("known", [True, False])
async def test_an_extra_attempt_that_became_due_long_ago_waits_for_no_breaker_either(database, known):
    """No process was there then, and the queue is long; or its transaction took long."""
    sender = Scripted()
    async with Queue(database) as queue:
        hook = await queue.webhook("http://receiver.test/x")
        now = await queue.now()
        health = Health(now, failures=9, breaker=Breaker.OPEN, probe_at=now + timedelta(minutes=5))
        await queue.store_health(hook, health)
        await queue.deliveries(hook, 5 if known else RECENT + 500)
        if not known:
            (extra,) = await queue.deliveries(hook, extra=1)
            await queue.shift(60)
        async with deliver(database, sender=sender) as role:
            await until(lambda: role.parts.catalog.unwell_lanes == {hook})
            if known:
                async with queue.connection.transaction():
                    (extra,) = await queue.deliveries(hook, extra=1)
                    await queue.shift(60, extra)
            await sender.wait()
            sender.end(OK)
            await queue.wait("deliveries_done", "delivery_id = $1 AND state = 4", extra)


async def test_recovery_starts_with_a_probe_and_ramps_up(database):
    sender = Scripted()
    async with Queue(database) as queue:
        hook = await queue.webhook("http://receiver.test/x", max_in_flight=50)
        now = await queue.now()
        health = Health(now - timedelta(hours=1), failures=9, breaker=Breaker.OPEN, probes=1, probe_at=now)
        await queue.store_health(hook, health)
        await queue.deliveries(hook, 60)
        async with deliver(database, sender=sender) as role:
            seen = []
            for allowed in (1, 2, 4, 8):
                await sender.wait(allowed)
                seen.append(len(sender.open))
                sender.end(OK)
                for _ in range(len(sender.open)):
                    sender.end(OK)
                if allowed == 1:
                    continue
            await until(lambda: role.parts.catalog.find(hook).health.breaker is Breaker.CLOSED or sender.open)
    assert seen[0] == 1
    assert seen[1] == 2
    assert all(count <= 50 for count in seen)


async def make_one_shots(queue):
    """One that is well and one whose breaker is open, of one origin."""
    well, unwell = [
        await queue.webhook(f"http://receiver.test/{name}", kind=WebhookKind.ONE_SHOT, lane=SHARED) for name in "ab"
    ]
    now = await queue.now()
    health = Health(now, failures=9, breaker=Breaker.OPEN, probe_at=now + timedelta(minutes=5))
    await queue.store_health(unwell, health)
    return well, unwell


async def test_a_one_shot_whose_breaker_is_open_does_not_stop_others_of_its_origin(database):
    sender = Scripted()
    async with Queue(database) as queue:
        well, unwell = await make_one_shots(queue)
        for hook in (well, unwell):
            await queue.deliveries(hook, 2)
        async with deliver(database, sender=sender):
            for _ in range(2):
                await sender.wait()
                sender.end(OK)
            await queue.wait("deliveries_done", "webhook_key = $1 AND state = 4", well, count=2)
            await queue.wait("deliveries", "lane = $1 AND lease_token IS NULL AND attempts = 0", unwell, count=2)


async def test_a_backlog_of_a_one_shot_that_is_not_well_is_no_way_to_go_for_others(database):
    sender = Scripted()
    async with Queue(database) as queue:
        well, unwell = await make_one_shots(queue)
        await queue.deliveries(unwell, 2_500)
        await queue.deliveries(well, 1)
        async with deliver(database, sender=sender, wrap=Watched) as role:
            await sender.wait()
            assert role.store.calls["claim"] < 50  # a lane that is not proven gets four at a time
            sender.end(OK)
            await queue.wait("deliveries_done", "webhook_key = $1 AND state = 4", well)
            await queue.wait("deliveries", "lane = $1 AND lease_token IS NULL", unwell, count=2_500)


async def test_extra_attempts_of_a_one_shot_that_is_not_well_leave_the_lane_open(database):
    sender = Scripted()
    async with Queue(database) as queue:
        well, unwell = await make_one_shots(queue)
        async with deliver(database, sender=sender):
            await queue.deliveries(unwell, 2)
            await queue.deliveries(unwell, resume_state=1, state=1, attempts=2)
            await sender.wait()
            await queue.deliveries(well)
            await sender.wait(2)
            for _ in range(2):
                sender.end(OK)
            await sender.wait()  # the extra attempt has shown that it is well again
            await queue.wait("deliveries_done", "webhook_key = $1 AND state = 4", well)


async def test_a_one_shot_that_recovers_is_probed_beside_others_of_its_origin(database):
    sender = Scripted()
    async with Queue(database) as queue:
        well, unwell = await make_one_shots(queue)
        await queue.store_health(well, Health(await queue.now(), last_success_at=await queue.now()))
        async with deliver(database, sender=sender):
            await queue.deliveries(unwell, 20)
            await queue.wait("deliveries", "lane = $1 AND lease_token IS NULL", unwell, count=20)
            await queue.store_health(unwell, Health(await queue.now(), failures=9, breaker=Breaker.HALF_OPEN))
            await sender.wait()
            await queue.deliveries(well, 5)
            await sender.wait(6)
            for _ in range(25):
                await sender.wait()
                sender.end(OK)
            await queue.wait("deliveries_done", "state = 4", count=25)


async def test_a_webhook_that_fails_for_days_is_disabled_once(database):
    sender = Scripted()
    async with Queue(database) as queue:
        hook = await queue.webhook("http://receiver.test/x")
        enabled_at = await queue.now() - timedelta(days=6)
        await queue.store_health(hook, Health(enabled_at, failures=20, window=5, failed_windows=3, ramp=1))
        await queue.deliveries(hook, 4)
        async with deliver(database, sender=sender) as role:
            await sender.wait()
            sender.end(FAILED)
            await queue.wait("webhooks", "state = 2 AND state_reason = 'failing' AND state_detail IS NOT NULL")
            await queue.wait("deliveries", "state = 2 AND reason = 'disabled'", count=3)
            await until(lambda: role.watcher.disabled == 1)
            version = await queue.connection.fetchval("SELECT routing_version FROM tenants WHERE tenant_id = 't1'")
    assert version is not None  # routing looks again: the tenant has a row since
    assert len(sender.requests) <= 2  # the next one may have started before the rule was applied
    assert [name for name, _ in role.watcher.events].count("webhook_disabled") == 1


async def test_a_success_ends_the_rest_that_was_asked_for(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/x", max_in_flight=2)
        await queue.deliveries(hook, 1)
        await sender.wait()
        sender.end(OK)
        await queue.deliveries(hook, 2)
        await sender.wait(2)
        sender.end(Outcome(OutcomeClass.HTTP_ERROR, 429, retry_after=("300",)))
        await queue.wait("webhook_health", "held_until IS NOT NULL")
        sender.end(OK)
        await queue.wait("webhook_health", "held_until IS NULL")
        await until(lambda: not role.parts.catalog.find(hook).troubled)


async def test_what_another_process_learned_reaches_this_one(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/x")
        await queue.deliveries(hook, 1)
        await sender.wait()
        now = await queue.now()
        health = Health(now, failures=9, breaker=Breaker.OPEN, probe_at=now + timedelta(minutes=5))
        await queue.store_health(hook, health)
        await until(lambda: role.parts.catalog.find(hook).health.breaker is Breaker.OPEN)
        await queue.store_health(hook, Health(now))
        await until(lambda: role.parts.catalog.find(hook).health.breaker is Breaker.CLOSED)


# --- upkeep -----------------------------------------------------------------------------------------------------------


async def test_held_deliveries_of_an_enabled_webhook_are_let_go(database):
    async with Queue(database) as queue:
        fine = await queue.webhook("http://receiver.test/x")
        paused = await queue.webhook("http://receiver.test/y", state=1)
        held = {"state": 2, "reason": "paused"}
        (free,) = await queue.deliveries(fine, **held)
        (other,) = await queue.deliveries(fine, state=2, reason="internal_error")
        (stays,) = await queue.deliveries(paused, **held)
        await queue.execute("UPDATE deliveries SET due_at = NULL, held_at = now() - interval '50 s'")
        _, due = await run_release(database)
        assert due == [1]
        row = await queue.live(free)
        assert (row["state"], row["reason"], row["held_at"]) == (0, None, None)
        assert row["first_due_at"] > row["created_at"] + timedelta(seconds=45)
        assert [(await queue.live(each))["state"] for each in (other, stays)] == [2, 2]


async def test_deliveries_held_too_long_end_except_a_batchs_newest_finish(database):
    async with Queue(database) as queue:
        hook = await queue.webhook("http://receiver.test/x", state=1)
        old, newest = [
            (await queue.deliveries(hook, state=2, reason="paused", scope=0, batch_key=1, generation=n))[0]
            for n in (1, 2)
        ]
        (own_schedule,) = await queue.deliveries(
            await queue.webhook("http://receiver.test/y", state=2, retry_schedule=[500]), state=2, reason="disabled"
        )
        await queue.execute(
            """INSERT INTO batches (tenant_id, name, seq, incarnation_id, finish_message_id)
            SELECT 't1', 'b', 1, 'i', message_id FROM deliveries WHERE delivery_id = $1""",
            newest,
        )
        await queue.execute("UPDATE deliveries SET batch_key = (SELECT batch_key FROM batches) WHERE scope = 0")
        await queue.execute("UPDATE deliveries SET due_at = NULL, held_at = now() - interval '150 s'")
        watcher, _ = await run_release(database)
        done = await queue.done(old)
        assert (done["state"], done["reason"]) == (5, "held_too_long")
        assert await queue.live(newest)
        assert await queue.live(own_schedule)
    assert watcher.finished == {"failed": 1}


async def test_deliveries_behind_an_open_breaker_end_with_their_schedule(database):
    async with Queue(database) as queue:
        hook = await queue.webhook("http://receiver.test/x")
        old, young = await queue.deliveries(hook, 2)
        await queue.store_health(hook, Health(await queue.now(), breaker=Breaker.OPEN))
        await queue.shift(150, old)
        watcher, _ = await run_release(database)
        assert (await queue.done(old))["reason"] == "exhausted"
        assert await queue.live(young)
    assert watcher.finished == {"failed": 1}


async def test_undecryptable_webhooks_are_tried_again(database):
    async with Queue(database) as queue:
        (delivery_id,) = await queue.deliveries(
            await queue.webhook("http://receiver.test/x"), state=2, reason="undecryptable"
        )
        await queue.execute("UPDATE deliveries SET due_at = NULL")
        await run_release(database)
        assert (await queue.live(delivery_id))["state"] == 0


# --- the short way ----------------------------------------------------------------------------------------------------


async def reserve(role, hook):
    """Room for a delivery, as soon as there is some: knowledge may be stale, and the one before may be on its way out."""
    leases = []

    def reserved():
        lease = role.parts.handoff.reserve(hook, hook, "t1")
        return lease is not None and not leases.append(lease)

    await until(reserved)
    return leases[0]


async def hand_over(queue, role, hook, lease):
    """What ingest does: insert with the lease, commit, push."""
    (delivery_id,) = await queue.deliveries(hook, lease_token=lease.token, lease_until=lease.until)
    row = await queue.live(delivery_id)
    at = row["created_at"].timestamp()
    role.parts.handoff.push(
        ReadyDelivery(
            lease.token, lease.expires, delivery_id, hook, lease.lane, "t1", row["message_id"], row["type"], 1, None, 0,
            at, at, 0, b"{}",
        )
    )  # fmt: skip
    return delivery_id


async def test_a_handed_over_delivery_is_sent_without_a_claim(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database) as role:
        hook = await queue.webhook(receiver.url())
        await until(role.parts.engine.may_send)
        ids = []
        for _ in range(3):
            lease = await reserve(role, hook)
            ids.append(await hand_over(queue, role, hook, lease))
            await queue.wait("deliveries_done", "delivery_id = $1", ids[-1])
        assert role.watcher.claimed == 0
        await until(lambda: role.parts.slots.buffer.reserved == 0)
    assert len(receiver.requests) == 3


async def test_there_is_no_short_way_past_older_rows_limits_or_a_stop(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        handoff = role.parts.handoff
        await until(role.parts.engine.may_send)
        rated = await queue.webhook("http://receiver.test/r", rate_limit=5)
        await role.parts.catalog.reload([rated])
        assert handoff.reserve(rated, rated, "t1") is None
    assert handoff.reserve(1, 1, "t1") is None


async def test_a_lane_that_is_behind_takes_the_long_way(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/x")
        await queue.deliveries(hook, 30)
        await sender.wait()
        assert role.parts.handoff.reserve(hook, hook, "t1") is None


async def test_cancelled_room_is_free_again(database):
    async with Queue(database) as queue, deliver(database) as role:
        await until(role.parts.engine.may_send)
        hook = await queue.webhook("http://receiver.test/x")
        lease = await reserve(role, hook)
        assert role.parts.slots.buffer.reserved == 1
        role.parts.handoff.cancel(lease)
        assert role.parts.slots.buffer.reserved == 0


async def test_what_is_pushed_after_the_stop_is_handed_back(database):
    async with Queue(database) as queue, deliver(database, rules=AttemptRules()) as role:
        await until(role.parts.engine.may_send)
        hook = await queue.webhook("http://receiver.test/x")
        lease = await reserve(role, hook)
        role.parts.engine._running = False
        delivery_id = await hand_over(queue, role, hook, lease)
        await queue.wait("deliveries", "delivery_id = $1 AND lease_token IS NULL", delivery_id)
