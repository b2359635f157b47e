"""What broke in delivery for other senders."""

import asyncio
import time
from base64 import b64encode
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from service.delivery.attempting import AttemptRules
from service.domain.attempts import Outcome, OutcomeClass
from service.domain.health import Breaker, HealthRules, build_health, observe
from service.domain.schedule import Schedule
from service.sender import SenderLimits
from service.sender.resolver import ResolverLimits
from service.store.codes import WebhookKind
from tests.support.certs import Authority
from tests.support.delivering import SECRET, Queue, build_defaults, deliver, until
from tests.support.receivers import NO_CONTENT, answering, in_turn, receive, silent
from tests.support.receiving import Answer, Receiver
from tests.support.scripted import Scripted
from tests.support.senders import Names, open_client

FAIL = b"HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n"
OK = Outcome(OutcomeClass.DELIVERED, 204)


async def test_f03_one_hanging_host_does_not_eat_the_slots(database):
    async with (
        receive(silent) as hanging,
        receive(answering(NO_CONTENT)) as fast,
        Queue(database) as queue,
        deliver(database, max_in_flight=20, drain=0.1) as role,
    ):
        await queue.deliveries(await queue.webhook(hanging.url(), timeout_seconds=30.0), 200)
        await until(lambda: hanging.requests)
        (delivery_id,) = await queue.deliveries(await queue.webhook(fast.url()))
        await until(lambda: fast.requests)
        await queue.wait("deliveries_done", "delivery_id = $1", delivery_id)
        assert {outcome.kind for outcome, *_ in role.watcher.attempts} <= {OutcomeClass.DELIVERED}  # none ended first
        assert len(hanging.requests) == 1  # unproven: one at a time
        await until(lambda: role.parts.slots.in_flight == 1)


@pytest.mark.parametrize("tenants", ["one", "many"])
async def test_f03_more_hanging_webhooks_than_the_buffer_holds_keep_nobody_out(database, tenants):
    async with (
        receive(silent) as hanging,
        receive(answering(NO_CONTENT)) as healthy,
        Queue(database) as queue,
        deliver(database, max_in_flight=40, drain=0.1) as role,
    ):
        well = await queue.webhook(healthy.url())
        await queue.deliveries(well)
        await queue.wait("deliveries_done", "state = 4")
        for number in range(100):
            tenant = "bad" if tenants == "one" else f"bad{number}"
            await queue.deliveries(await queue.webhook(hanging.url(), tenant_id=tenant, timeout_seconds=30.0), 5)
        await until(lambda: len(hanging.requests) >= 10)
        await queue.deliveries(well, 100)
        await queue.wait("deliveries_done", "state = 4", count=101)
        assert role.parts.slots.waiting < role.parts.slots.buffer.size
        assert hanging.live <= 20  # the address is shared, so its unproven half of a half stays


async def test_f02_a_wait_for_a_slot_is_measured_apart_and_signed_after(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender, max_in_flight=1) as role:
        one, other = [await queue.webhook(f"http://{name}.test/") for name in "ab"]
        await queue.deliveries(one, 2)
        await sender.wait()
        await queue.deliveries(other, 1)
        await until(lambda: role.parts.slots.waiting == 2)
        role.clock.added = 30.0
        sender.end(OK)
        await sender.wait()
        sender.end(OK)
        await until(lambda: len(role.watcher.attempts) == 2)
        waits = [slot_wait for _, slot_wait, _, _ in role.watcher.attempts]
        durations = [outcome.duration for outcome, *_ in role.watcher.attempts]
        first, second = [int(_header(request, "webhook-timestamp")) for request, _ in sender.requests[:2]]
        deadlines = [deadline for _, deadline in sender.requests[:2]]
    assert waits[1] >= 29
    assert deadlines[1] - deadlines[0] >= 29  # the receiver has its whole timeout still
    assert durations == [0.0, 0.0]
    assert second >= first  # by the clock of the database, which did not jump


def _header(request, name):
    lines = request.headers.decode().split("\r\n")
    return next(line.split(": ", 1)[1] for line in lines if line.startswith(f"{name}: "))


async def test_f09_a_name_that_exists_only_later_is_a_failed_attempt_until_then(database):
    names, limits = Names(), SenderLimits(resolver=ResolverLimits(negative_ttl=0.0))
    async with (
        receive(answering(NO_CONTENT)) as receiver,
        open_client(names=names, limits=limits) as client,
        Queue(database) as queue,
        deliver(database, sender=client.sender) as role,
    ):
        hook = await queue.webhook(receiver.url(host="later.example"), retry_schedule=[3600, 3600])
        (delivery_id,) = await queue.deliveries(hook)
        for number in (1, 2):
            await queue.wait("deliveries", "state = 1 AND attempts = $1 AND lease_token IS NULL", number)
            if number == 2:
                names.table["later.example"] = ("127.0.0.1",)
            await queue.shift(3600 * 1.2)
        await queue.wait("deliveries_done", "state = 4")
        attempts = await queue.attempts(delivery_id)
    assert [attempt["outcome"] for attempt in attempts] == ["dns_error", "dns_error", "delivered"]
    assert [attempt["detail"] for attempt in attempts] == ["nxdomain", "nxdomain", None]
    assert role.watcher.faults == []  # it was never ours


RESERVED = [
    "Webhook-Signature", "WEBHOOK-ID", "Stripe-Signature", "ce-id", "HOST", "Content-Length", "Transfer-Encoding",
    "Connection", "Webhook_Signature", "webhook_timestamp",
]  # fmt: skip


async def test_f15_headers_that_were_stored_by_other_code_override_nothing_on_the_wire(database):
    async with receive(answering(NO_CONTENT)) as receiver, Queue(database) as queue, deliver(database):
        stored = [("X-Mine", "1"), *((name, "forged") for name in (*RESERVED, "X Space"))]
        await queue.deliveries(await queue.webhook(receiver.url(), headers=stored))
        await queue.wait("deliveries_done", "state = 4")
        (request,) = receiver.requests
    assert request.get("X-Mine") == "1"
    assert b"forged" not in request.head


FAILURES = {
    "redirect": b"HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:9/\r\ncontent-length: 0\r\n\r\n",
    "reset": b"",
    "protocol_error": b"SSH-2.0-OpenSSH_9.2p1\r\n",
    "http_error": b"HTTP/1.1 999 Odd\r\ncontent-length: 0\r\n\r\n",
}


@pytest.mark.parametrize("kind", FAILURES)
async def test_f10_f20_f21_f23_what_is_no_success_is_a_failed_attempt_and_is_tried_again(database, kind):
    script = in_turn(answering(FAILURES[kind], then="close"), answering(NO_CONTENT))
    async with receive(script) as receiver, Queue(database) as queue, deliver(database):
        (delivery_id,) = await queue.deliveries(await queue.webhook(receiver.url(), retry_schedule=[3600]))
        await queue.wait("deliveries", "state = 1 AND attempts = 1 AND lease_token IS NULL")
        await queue.wait("webhook_health", "last_failure_at IS NOT NULL")
        await queue.shift(3600 * 1.2)
        await queue.wait("deliveries_done", "state = 4 AND attempts = 2")
        attempts = await queue.attempts(delivery_id)
    assert [attempt["outcome"] for attempt in attempts] == [kind, "delivered"]
    assert [request.get("webhook-attempt") for request in receiver.requests] == ["1", "2"]
    assert len({request.get("webhook-id") for request in receiver.requests}) == 1


async def test_f08_a_bad_certificate_is_tried_again_and_its_owner_is_told(database, tmp_path):
    server = Authority(tmp_path).server("127.0.0.1", self_signed=True)
    async with receive(answering(NO_CONTENT), tls=server) as receiver, Queue(database) as queue, deliver(database):
        await queue.deliveries(await queue.webhook(receiver.url(scheme="https"), retry_schedule=[3600]))
        await queue.wait("deliveries", "state = 1 AND attempts = 1 AND last_class = 'tls_error'")
        await queue.wait("webhook_health", "last_error = 'tls_error self-signed'")
    assert receiver.requests == []


async def test_f35_failures_of_one_second_spread_over_the_jitter(database):
    defaults = build_defaults(Schedule((timedelta(seconds=300),), 0.2))
    async with receive(answering(FAIL)) as receiver, Queue(database) as queue, deliver(database, defaults=defaults):
        hook = await queue.webhook(receiver.url(), kind=WebhookKind.ONE_SHOT, max_in_flight=100)
        for _ in range(4):
            await queue.deliveries(await queue.webhook(receiver.url(), max_in_flight=100), 8)
        await queue.deliveries(hook, 8)
        await queue.wait("deliveries", "state = 1", count=40)
        rows = await queue.connection.fetch(
            """SELECT extract(epoch FROM d.due_at - a.started_at)::float8 AS wait
            FROM deliveries AS d JOIN attempts AS a USING (delivery_id)"""
        )
    waits = sorted(row["wait"] for row in rows)
    assert waits[0] >= 240.0
    assert waits[-1] <= 360.0 + 30.0  # and what the attempt took
    assert waits[-1] - waits[0] > 50.0
    assert len({round(wait, 1) for wait in waits}) > 20


async def test_f39_retry_after_on_a_failure_holds_everything_of_its_webhook(database):
    async with Receiver() as receiver, Queue(database) as queue, deliver(database) as role:
        hook = await queue.webhook(receiver.url)
        await queue.deliveries(hook, 1)
        await queue.wait("deliveries_done", "state = 4")
        await until(lambda: role.parts.catalog.find(hook).health.last_success_at)
        receiver.otherwise = _answer(503)
        await queue.deliveries(hook, 30)
        await queue.wait("webhook_health", "held_until IS NOT NULL")
        await queue.wait("deliveries", "lease_token IS NULL", count=30)
        sent = len(receiver.arrivals)
        await queue.deliveries(hook, 5)
        await queue.wait("deliveries", "lease_token IS NULL", count=35)
        assert len(receiver.arrivals) == sent <= 12


def _answer(status):
    return Answer(status, {"retry-after": "600"})


async def test_f40_local_holds_spend_no_attempt(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender):
        hook = await queue.webhook("http://receiver.test/", rate_limit=1)
        await queue.deliveries(hook, 5)
        await sender.wait()
        await queue.execute(
            """INSERT INTO webhook_health (webhook_key, held_until) VALUES ($1, now() + interval '1 h')
            ON CONFLICT (webhook_key) DO UPDATE SET held_until = excluded.held_until""",
            hook,
        )
        await queue.wait("deliveries", "lease_token IS NULL AND attempts = 0", count=4)
        health = await queue.connection.fetchval("SELECT health FROM webhook_health")
        assert health is None
        assert await queue.count("attempts") == 0


async def test_f40_nor_do_those_of_a_one_shot_that_leave_a_shared_lane(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/", kind=WebhookKind.ONE_SHOT, lane=7)
        await queue.deliveries(hook, 5)
        await sender.wait()
        await queue.store_health(hook, build_health(await queue.now()), held_until="now() + interval '1 h'")
        await until(lambda: role.parts.catalog.find(hook).held_until)
        sender.end(Outcome(OutcomeClass.HTTP_ERROR, 500))
        for _ in range(5):
            await queue.wait(
                "deliveries", "state = 0 AND attempts = 0 AND lease_token IS NULL AND lane = webhook_key", count=4
            )
            looked_at = role.parts.intake.claimed_at
            await queue.shift(7200)
            await until(lambda then=looked_at: role.parts.intake.claimed_at > then)
        await queue.wait("attempts", "true")
        assert await queue.count("attempts") == len(sender.requests) == 1


async def test_f48_a_backlog_is_signed_when_it_is_sent(database):
    async with Receiver() as receiver, Queue(database) as queue:
        hook = await queue.webhook(receiver.url)
        await queue.deliveries(hook, 1)
        await queue.shift(600)
        async with deliver(database):
            await receiver.wait_for(1)
    receiver.arrivals[0].verify("whsec_" + _base64(SECRET))  # both libraries insist on five minutes


def _base64(key):
    return b64encode(key).decode()


async def test_f52_a_process_that_was_stopped_past_its_lease_sends_nothing_more(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender, rules=AttemptRules()) as role:
        hook = await queue.webhook("http://receiver.test/")
        await queue.deliveries(hook, 2)
        await sender.wait()
        await until(lambda: role.parts.slots.waiting == 1)
        role.clock.added = 65.0  # SIGSTOP for the lease and 5 s
        await queue.execute("UPDATE deliveries SET lease_token = 1, lease_until = now() + interval '1 min'")
        sender.end(Outcome(OutcomeClass.HTTP_ERROR, 500))
        await queue.wait("attempts", "superfluous")
        await until(lambda: role.parts.slots.waiting == 0)
        assert len(sender.requests) == 1
        assert await queue.count("deliveries", "lease_token = 1 AND attempts = 0") == 2


async def test_f53_every_attempt_has_the_same_id_and_bytes(database):
    script = in_turn(answering(FAIL, then="close"), answering(NO_CONTENT))
    schedule = Schedule((timedelta(seconds=2),) * 3, 0.2)  # timestamps are whole seconds: 1.6 s make them differ
    async with (
        receive(script) as receiver,
        Queue(database) as queue,
        deliver(database, defaults=build_defaults(schedule)),
    ):
        await queue.deliveries(await queue.webhook(receiver.url()))
        await queue.wait("deliveries_done", "state = 4")
        first, second = receiver.requests
    assert first.get("webhook-id") == second.get("webhook-id")
    assert first.body == second.body
    assert first.get("webhook-timestamp") < second.get("webhook-timestamp")


async def test_f54_an_answer_within_the_timeout_counts_and_one_after_it_is_tried_again(database):
    async with Receiver() as receiver, Queue(database) as queue, deliver(database, drain=0.2) as role:
        slow, late = receiver.hold(), receiver.hold()
        await queue.deliveries(await queue.webhook(receiver.url, timeout_seconds=30.0, retry_schedule=[3600]), 1)
        await receiver.wait_for(1)
        await asyncio.sleep(0.5)
        slow.release()
        await queue.wait("deliveries_done", "state = 4")
        await queue.deliveries(await queue.webhook(receiver.url, timeout_seconds=3.0, retry_schedule=[3600]), 1)
        await queue.wait("deliveries", "state = 1 AND last_class = 'timeout'")
        late.release()
        await until(lambda: len(role.watcher.attempts) == 2)
        kinds = Counter(outcome.kind for outcome, *_ in role.watcher.attempts)
    assert kinds == {OutcomeClass.DELIVERED: 1, OutcomeClass.TIMEOUT: 1}
    assert role.watcher.attempts[0][0].duration >= 0.4


async def test_f54_each_webhook_has_its_own_timeout(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender, drain=0.1) as role:
        for seconds in (1.0, 30.0):
            sender.requests.clear()
            before = role.clock.monotonic()
            await queue.deliveries(await queue.webhook("http://receiver.test/", timeout_seconds=seconds))
            await until(lambda: sender.requests)
            ((_, deadline),) = sender.requests
            assert before + seconds <= deadline <= role.clock.monotonic() + seconds


async def test_f55_deliveries_are_independent_and_say_which_is_newer(database):
    schedule = Schedule((timedelta(seconds=300),), 0.2)
    script = in_turn(answering(FAIL, then="close"), answering(NO_CONTENT))
    async with (
        receive(script) as receiver,
        Queue(database) as queue,
        deliver(database, defaults=build_defaults(schedule)),
    ):
        hook = await queue.webhook(receiver.url())
        await queue.deliveries(hook, generation=1)
        await queue.wait("deliveries", "state = 1 AND lease_token IS NULL")
        await queue.deliveries(hook, generation=2)
        await queue.wait("deliveries_done", "state = 4 AND generation = 2")
        await queue.shift(360)
        await queue.wait("deliveries_done", "state = 4 AND generation = 1")
    assert [request.get("webhook-generation") for request in receiver.requests] == ["1", "2", "1"]


async def test_f56_the_duration_is_the_receivers(database):
    async with Receiver() as receiver, Queue(database) as queue, deliver(database):
        held = receiver.hold()
        hook = await queue.webhook(receiver.url, timeout_seconds=30.0)
        started = time.monotonic()
        (delivery_id,) = await queue.deliveries(hook)
        await receiver.wait_for(1)
        await asyncio.sleep(0.3)
        held.release()
        await queue.wait("deliveries_done", "state = 4")
        took = time.monotonic() - started
        (attempt,) = await queue.attempts(delivery_id)
    assert 250 <= attempt["duration_ms"] <= took * 1000


async def test_f57_nothing_goes_to_a_deleted_webhook(database):
    sender = Scripted()
    async with Queue(database) as queue, deliver(database, sender=sender) as role:
        hook = await queue.webhook("http://receiver.test/", max_in_flight=3)
        await queue.deliveries(hook, 1)
        await sender.wait()
        sender.end(OK)
        await queue.wait("deliveries_done", "state = 4")
        await queue.deliveries(hook, 103)
        await sender.wait(3)
        await queue.execute("UPDATE webhooks SET deleted_at = now(), revision = 2, changed_at = now()")
        await queue.execute(
            "UPDATE deliveries SET flag = 2, flag_reason = 'webhook_deleted' WHERE lease_token IS NOT NULL"
        )
        await queue.execute("NOTIFY webhookd_webhooks")
        await until(lambda: role.parts.catalog.find(hook).revision == 2)
        sent = len(sender.requests)
        while sender.open:
            sender.end(OK)
        await queue.wait("deliveries_done", "state = 7 AND reason = 'webhook_deleted'", count=100)
        assert await queue.count("deliveries_done", "state = 4") == 1 + 3
        assert len(sender.requests) == sent == 4


def test_f59_flapping_neither_disables_nor_stays_blind():
    now = datetime(2026, 11, 30, tzinfo=UTC)
    rules = HealthRules()
    health = build_health(now)
    opened = 0
    for number in range(500):
        now += timedelta(minutes=30)
        observation = observe(health, delivered=number % 50 == 49, now=now, rules=rules)
        health = observation.health
        opened += health.breaker is not Breaker.CLOSED
        assert "disable" not in observation.events
    assert opened
