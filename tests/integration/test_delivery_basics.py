"""A due delivery becomes a POST and a record; failures follow the schedule."""

from datetime import timedelta

import pytest

from service.delivery.attempting import AttemptRules
from service.delivery.claiming import RECENT
from service.domain.schedule import Schedule
from service.store.codes import WebhookKind
from tests.support.delivering import SECRET, Queue, build_defaults, deliver, until
from tests.support.ports import find_free_port
from tests.support.receivers import NO_CONTENT, answering, receive

FAIL = b"HTTP/1.1 500 Oops\r\ncontent-length: 3\r\n\r\nbad"
GONE = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"
REST = b"HTTP/1.1 429 Slow\r\nretry-after: 600\r\ncontent-length: 0\r\n\r\n"


async def test_a_due_delivery_is_sent_and_recorded(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database) as role:
        hook = await queue.webhook(receiver.url(), headers=[("X-Api-Key", "k")])
        (delivery_id,) = await queue.deliveries(hook, body=b'{"b":1}')
        await queue.wait("deliveries_done", "delivery_id = $1", delivery_id)
        done = await queue.done(delivery_id)
        (attempt,) = await queue.attempts(delivery_id)
        (request,) = receiver.requests
    assert (done["state"], done["attempts"], done["webhook_id"]) == (4, 1, "whk_1")
    assert (attempt["outcome"], attempt["status"], attempt["superfluous"]) == ("delivered", 204, False)
    assert request.body == b'{"b":1}'
    assert request.get("webhook-attempt") == "1"
    assert request.get("X-Api-Key") == "k"
    assert role.watcher.finished == {"delivered": 1}


async def test_an_accepted_finish_of_a_batch_webhook_is_noted(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database):
        own = await queue.webhook(receiver.url(), kind=WebhookKind.BATCH, batch_key=7)
        other = await queue.webhook(receiver.url())
        await queue.deliveries(own, scope=0, batch_key=7, group_key=7, generation=3)
        await queue.deliveries(own, scope=0, batch_key=7, generation=2)
        await queue.deliveries(other, scope=0, batch_key=8, group_key=8, generation=9)
        await queue.wait("deliveries_done", "state = 4", count=3)
        noted = await queue.connection.fetch("SELECT batch_key, generation FROM batch_delivered")
    assert [tuple(row) for row in noted] == [(7, 3)]


async def test_failures_follow_the_schedule_and_then_end(database):
    schedule = Schedule((timedelta(seconds=300), timedelta(seconds=600)), 0.2)
    async with (
        receive(answering(FAIL)) as receiver,
        Queue(database) as queue,
        deliver(database, defaults=build_defaults(schedule)) as role,
    ):
        hook = await queue.webhook(receiver.url())
        (delivery_id,) = await queue.deliveries(hook)
        for number, step in ((1, 300), (2, 600)):
            await queue.wait("deliveries", "state = 1 AND attempts = $1 AND lease_token IS NULL", number)
            row = await queue.live(delivery_id)
            attempt = (await queue.attempts(delivery_id))[-1]
            wait = (row["due_at"] - attempt["started_at"]).total_seconds()
            assert step * 0.8 <= wait <= step * 1.2 + 30  # and what the attempt took
            assert (attempt["next_at"], attempt["excerpt"]) == (row["due_at"], b"bad")
            await queue.shift(step * 1.2)
        await queue.wait("deliveries_done", "delivery_id = $1", delivery_id)
        done = await queue.done(delivery_id)
    assert (done["state"], done["reason"], done["attempts"]) == (5, "exhausted", 3)
    assert [request.get("webhook-attempt") for request in receiver.requests] == ["1", "2", "3"]
    assert len({request.get("webhook-id") for request in receiver.requests}) == 1
    told = [fields for event, fields in role.watcher.events if event == "attempt_failed"][-1]
    assert (told["delivery_id"], told["state"], told["reason"]) == (f"dlv_{delivery_id}", "failed", "exhausted")
    assert role.watcher.finished == {"failed": 1}


async def test_a_retry_goes_out_when_it_is_due_without_being_told(database):
    schedule = Schedule((timedelta(seconds=1),), 0.2)
    script = answering(FAIL, then="close")
    async with (
        receive(script) as receiver,
        Queue(database) as queue,
        deliver(database, defaults=build_defaults(schedule)),
    ):
        (delivery_id,) = await queue.deliveries(await queue.webhook(receiver.url()))
        await queue.wait("deliveries_done", "delivery_id = $1", delivery_id)
        first, second = await queue.attempts(delivery_id)
    assert second["started_at"] >= first["next_at"]


async def test_what_cannot_be_connected_is_retried(database):
    async with Queue(database) as queue, deliver(database) as role:
        hook = await queue.webhook(f"http://127.0.0.1:{find_free_port()}/", retry_schedule=[3600])
        (delivery_id,) = await queue.deliveries(hook)
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL")
        row = await queue.live(delivery_id)
        health = await queue.connection.fetchrow("SELECT * FROM webhook_health")
        await queue.wait("webhook_health", "last_error = 'connect_error refused'")
        health = await queue.connection.fetchrow("SELECT * FROM webhook_health")
    assert row["last_class"] == "connect_error"
    assert health["last_failure_at"] is not None
    assert [name for name, _ in role.watcher.events] == ["attempt_failed"]


async def test_a_url_refused_for_its_form_fails_at_once(database):
    async with Queue(database) as queue, deliver(database):
        (delivery_id,) = await queue.deliveries(await queue.webhook("ftp://example.test/"))
        await queue.wait("deliveries_done", "delivery_id = $1", delivery_id)
        done = await queue.done(delivery_id)
        (attempt,) = await queue.attempts(delivery_id)
    assert (done["state"], done["reason"]) == (5, "url_refused")
    assert (attempt["outcome"], attempt["detail"]) == ("url_refused", "scheme")


async def test_an_unknown_name_is_a_failed_attempt(database):
    async with Queue(database) as queue, deliver(database) as role:
        (delivery_id,) = await queue.deliveries(await queue.webhook("http://nowhere.example/", retry_schedule=[3600]))
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL")
        (attempt,) = await queue.attempts(delivery_id)
        await until(lambda: role.parts.slots.in_flight == 0)
    assert attempt["outcome"] == "dns_error"


async def test_a_410_disables_the_webhook_and_holds_what_waits(database):
    async with receive(answering(GONE)) as receiver, Queue(database) as queue, deliver(database) as role:
        hook = await queue.webhook(receiver.url())
        await queue.deliveries(hook, 3)
        await queue.wait("deliveries", "state = 2 AND reason = 'disabled' AND lease_token IS NULL", count=3)
        await queue.wait("webhooks", "state = 2 AND state_reason = 'gone' AND revision = 2")
        await until(lambda: role.watcher.disabled == 1)
        (told,) = [fields for event, fields in role.watcher.events if event == "webhook_disabled"]
        assert await queue.count("webhooks", "webhook_id = $1 AND webhook_key = $2", told["webhook_id"], hook) == 1
    assert (told["tenant_id"], told["reason"]) == ("t1", "gone")
    assert len(receiver.requests) == 1


async def test_a_410_to_a_one_shot_fails_that_delivery_only(database):
    async with receive(answering(GONE)) as receiver, Queue(database) as queue, deliver(database):
        hook = await queue.webhook(receiver.url(), kind=WebhookKind.ONE_SHOT)
        await queue.deliveries(hook, 2)
        await queue.wait("deliveries_done", "state = 5 AND reason = 'gone'", count=2)
        assert await queue.count("webhooks", "state = 0") == 1


async def test_a_429_with_retry_after_rests_the_whole_webhook(database):
    async with receive(answering(REST)) as receiver, Queue(database) as queue, deliver(database):
        hook = await queue.webhook(receiver.url())
        await queue.deliveries(hook, 5)
        await queue.wait("webhook_health", "held_until > now() + interval '500 seconds'")
        await queue.wait("deliveries", "lease_token IS NULL", count=5)
        assert len(receiver.requests) == 1
        assert await queue.count("deliveries", "attempts = 0 AND state = 0") == 4


async def test_successes_are_logged_by_sample_only(database):
    async with (
        receive(answering(NO_CONTENT)) as receiver,
        Queue(database) as queue,
        deliver(database, rules=AttemptRules(sample=1.0)) as role,
    ):
        await queue.deliveries(await queue.webhook(receiver.url()))
        await until(lambda: role.watcher.events)
    ((name, fields),) = role.watcher.events
    assert (name, fields["outcome"], fields["status"]) == ("attempt", "delivered", 204)
    assert SECRET.decode() not in str(fields)


@pytest.mark.parametrize("pause", [("tenant", "t1", None), ("host", None, "127.0.0.1"), ("all", None, None)])
async def test_operator_pauses_stop_claims_and_change_nothing(database, pause):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue:
        scope, tenant, host = pause
        await queue.execute(
            "INSERT INTO operator_pauses (scope, tenant_id, host, created_by) VALUES ($1, $2, $3, 'x')",
            scope,
            tenant,
            host,
        )
        hook = await queue.webhook(receiver.url())
        await queue.deliveries(hook, 3)
        async with deliver(database) as role:
            await until(lambda: role.parts.catalog.pauses.everything or role.parts.catalog.closed_lanes == {hook})
            await queue.wait("deliveries", "lease_token IS NULL AND state = 0 AND attempts = 0", count=3)
            assert receiver.requests == []
            await queue.execute("DELETE FROM operator_pauses")
            await queue.wait("deliveries_done", "state = 4", count=3)


async def test_what_is_committed_long_after_it_was_due_is_found(database, monkeypatch):
    monkeypatch.setattr("service.delivery.intake.SURVEY_EVERY", 0.2)
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database):
        hook = await queue.webhook(receiver.url())
        (first,) = await queue.deliveries(hook)
        await queue.wait("deliveries_done", "delivery_id = $1", first)
        async with queue.connection.transaction():
            (late,) = await queue.deliveries(hook)
            await queue.execute("UPDATE deliveries SET due_at = now() - interval '10 minutes'")
        await queue.wait("deliveries_done", "delivery_id = $1", late)


async def test_what_is_due_behind_a_flood_of_others_is_found(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database):
        stuck = await queue.webhook("http://receiver.test/", max_in_flight=1)
        await queue.connection.execute("INSERT INTO webhook_health (webhook_key, breaker) VALUES ($1, 1)", stuck)
        await queue.deliveries(stuck, RECENT + 1)
        (other,) = await queue.deliveries(await queue.webhook(receiver.url()))
        await queue.wait("deliveries_done", "delivery_id = $1", other)
        assert await queue.connection.fetchval("SELECT count(*) FROM deliveries") == RECENT + 1


async def test_what_has_to_wait_for_others_of_its_kind_is_left_in_the_queue(database):
    """More is due for receivers that have never accepted anything than may wait in memory: half of 64."""
    refusal = answering(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", pause=0.01)
    async with receive(refusal) as receiver, Queue(database) as queue:
        for number in range(150):
            await queue.deliveries(await queue.webhook(receiver.url(f"/{number}"), tenant_id=f"t{number}"), 4)
        async with deliver(database, max_in_flight=16) as role:
            await queue.wait("deliveries", "attempts = 1", count=600)
        assert role.watcher.claimed < 900
