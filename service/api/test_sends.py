"""Test sends: one ordinary delivery of a ``webhook.test`` message, and a while of waiting for what comes of it."""

from __future__ import annotations

import asyncio

from service.api.answers import TestAnswer
from service.api.calls import Answer, Call
from service.api.problems import Problem
from service.api.views import shown_outcome
from service.domain.attempts import UNREACHABLE
from service.store import delivery_views, message_store
from service.store.codes import Scope, WebhookKind
from service.store.database import Row
from service.store.delivery_views import SeenDelivery
from service.store.webhooks import StoredWebhook

LOOK_EVERY = 0.1  # seconds
ROUNDED_TO_MS = 100
MARGIN = 5.0  # seconds beyond the webhook's own timeout, for the queue and the record


async def send_test(call: Call, webhook: StoredWebhook) -> Answer:
    """Queue a test and wait for its outcome up to the webhook's deadline; 202 when it takes longer."""
    if webhook.kind is WebhookKind.ONE_SHOT:
        raise Problem(409, "one_shot", "A one-shot URL is not tested.")
    async with call.parts.database.transaction() as session:
        delivery_id = await message_store.queue_test(session, call.parts.registry, webhook)
    call.parts.registry.made(Scope.NONE.word, False)
    deadline = webhook.settings.timeout_seconds or call.parts.registry.defaults.timeout_seconds
    seen = await _wait(call, delivery_id, min(deadline + MARGIN, call.parts.limits.test_wait.total_seconds()))
    if seen is None or seen.finished_at is None:
        return Answer(202, TestAnswer(delivery_id=f"dlv_{delivery_id}", state=seen.state if seen else "pending"))
    async with call.parts.database.session() as session:
        attempts = await delivery_views.list_attempts(session, delivery_id)
    return Answer(200, _show(seen, attempts[-1] if attempts else None, operator=call.operator))


async def _wait(call: Call, delivery_id: int, seconds: float) -> SeenDelivery | None:
    clock = call.parts.clock
    until = clock.monotonic() + seconds
    while True:
        async with call.parts.database.session() as session:
            seen = await delivery_views.find_delivery(session, call.tenant_id, delivery_id)
        if clock.monotonic() >= until or (seen is not None and seen.finished_at is not None):
            return seen
        await asyncio.sleep(LOOK_EVERY)


def _show(seen: SeenDelivery, attempt: Row | None, *, operator: bool) -> TestAnswer:
    """Show class and rounded latency, never the answer itself; of an unreachable name, no latency either."""
    outcome = shown_outcome(attempt["outcome"] if attempt else seen.last_class, operator=operator)
    latency = None
    if attempt is not None and outcome != UNREACHABLE:
        latency = round(attempt["duration_ms"] / ROUNDED_TO_MS) * ROUNDED_TO_MS
    return TestAnswer(
        delivery_id=f"dlv_{seen.delivery_id}",
        state=seen.state,
        status=attempt["status"] if attempt else None,
        class_=outcome,
        latency_ms=latency,
    )
