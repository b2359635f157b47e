"""The webhook of one batch: ``/v1/batches/{batch_name}/webhook`` and below."""

from __future__ import annotations

from dataclasses import replace

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.models import BatchWebhookPut, Renotify, Reveal
from service.api.problems import not_found, rule_broken
from service.api.settings_of import put_request
from service.api.test_sends import send_test
from service.api.views import describe_batch_webhook
from service.api.webhook_calls import (
    check_match,
    describe_change,
    enable_webhook,
    etag,
    pause_webhook,
    revoke_previous,
    rotate_webhook_secret,
)
from service.domain.events import BatchRef
from service.domain.names import is_name
from service.store import batches, registrations, renotifying, webhooks
from service.store.batches import SeenBatch
from service.store.webhooks import StoredWebhook


def batch_name(call: Call) -> str:
    """Return the batch's name from the path. Raises Problem (422)."""
    name = call.path["batch_name"]
    if not is_name(name):
        raise rule_broken("batch_name", "invalid_name", "A batch name is 1 to 255 characters, no control characters.")
    return name


def _target(name: str) -> str:
    return f"batch {name}"


async def _get(call: Call) -> tuple[SeenBatch, StoredWebhook]:
    seen = await batches.find_batch(call.session, call.tenant_id, batch_name(call))
    if seen is None:
        raise not_found("webhook")
    webhook = await webhooks.find_batch_webhook(call.session, call.parts.registry, seen.batch.key)
    if webhook is None:
        raise not_found("webhook")
    return seen, webhook


async def _lock(call: Call) -> StoredWebhook:
    """Lock batch and webhook, in this order."""
    batch = await batches.lock_batch(call.session, call.tenant_id, batch_name(call))
    webhook = None
    if batch is not None:
        webhook = await webhooks.lock_batch_webhook(call.session, call.parts.registry, batch.key)
    if webhook is None:
        raise not_found("webhook")
    return webhook


async def put(call: Call) -> Answer:
    """Register the webhook of a batch, or replace it."""
    name, body = batch_name(call), call.body(BatchWebhookPut)
    ref = BatchRef(name, body.batch_id)
    done = await registrations.put_batch_webhook(
        call.session, call.parts.registry, call.tenant_id, ref, put_request(body)
    )
    check_match(call, done.before)  # the transaction ends with it
    pending = await webhooks.count_pending(call.session, done.webhook.webhook_key)
    shown = describe_batch_webhook(
        done.webhook, done.batch, done.delivered_generation, pending, reveal=True, operator=call.operator
    )
    answer = answers.BatchWebhookRegistered(
        **shown,
        result=done.plan.result.value,
        delivery_queued=done.delivery_queued,
        delivery_reason=done.plan.why.value,
        secret=done.secret,
    )
    change = describe_change(call, _target(name), done.before, done.webhook)
    return Answer(201 if done.before is None else 200, answer, {"ETag": etag(done.webhook)}, change)


async def get(call: Call) -> Answer:
    """Show the webhook of a batch."""
    seen, webhook = await _get(call)
    pending = await webhooks.count_pending(call.session, webhook.webhook_key)
    reveal = call.reveals(call.query(Reveal).reveal)
    shown = describe_batch_webhook(
        webhook, seen.batch, seen.delivered_generation, pending, reveal=reveal, operator=call.operator
    )
    return Answer(200, answers.BatchWebhook(**shown), {"ETag": etag(webhook)})


async def delete(call: Call) -> Answer:
    """Retire the registration; what waits is canceled."""
    name = batch_name(call)
    webhook = await registrations.delete_batch_webhook(call.session, call.parts.registry, call.tenant_id, name)
    if webhook is None:
        raise not_found("webhook")
    check_match(call, webhook)
    return Answer(204, change=describe_change(call, _target(name), webhook, None))


async def pause(call: Call) -> Answer:
    """Hold deliveries."""
    return await pause_webhook(call, await _lock(call), _target(batch_name(call)))


async def enable(call: Call) -> Answer:
    """Release deliveries, one trial first."""
    return await enable_webhook(call, await _lock(call), _target(batch_name(call)))


async def rotate(call: Call) -> Answer:
    """Make a new secret."""
    return await rotate_webhook_secret(call, await _lock(call), _target(batch_name(call)))


async def revoke(call: Call) -> Answer:
    """End the overlap of a rotation."""
    return await revoke_previous(call, await _lock(call), _target(batch_name(call)))


async def test(call: Call) -> Answer:
    """Send one test message."""
    async with call.parts.database.session() as session:
        _, webhook = await _get(replace(call, session_now=session))
    return await send_test(call, webhook)


async def renotify(call: Call) -> Answer:
    """Send the newest finish again."""
    name, body = batch_name(call), call.body(Renotify)
    sent = await renotifying.renotify(
        call.session, call.parts.registry, call.tenant_id, name, force=body.force, new_id=body.new_id
    )
    answer = answers.Renotified(message_id=sent.message_id, generation=sent.batch.finish, deliveries=sent.deliveries)
    return Answer(202, answer, change=Change(_target(name), None, {"message_id": sent.message_id, **body.model_dump()}))
