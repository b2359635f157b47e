"""Webhooks by id: ``/v1/webhooks`` and below."""

from __future__ import annotations

from service.api import answers
from service.api.calls import Answer, Call
from service.api.cursors import cut, read_number, write_number
from service.api.models import Reveal, WebhookPage, WebhookPatch, WebhookPost
from service.api.problems import Problem, not_found
from service.api.settings_of import patch_request, post_request
from service.api.test_sends import send_test
from service.api.views import show_account_webhook, show_webhook_detail
from service.api.webhook_calls import (
    check_match,
    describe_change,
    enable_webhook,
    etag,
    pause_webhook,
    revoke_previous,
    rotate_webhook_secret,
    webhook_id,
)
from service.domain.webhooks import find_setting_problems
from service.store import batches, registrations, webhooks
from service.store.codes import WebhookKind
from service.store.webhooks import StoredWebhook

_LIST = "webhooks"


def _target(name: str) -> str:
    return f"webhook {name}"


async def create(call: Call) -> Answer:
    """Store an account webhook."""
    body = call.body(WebhookPost)
    made = await registrations.create_webhook(
        call.session, call.parts.registry, call.tenant_id, body.id, post_request(body)
    )
    webhook = made.webhook
    answer = show_webhook_detail(webhook, 0, reveal=True, operator=call.operator, secret=made.secret)
    change = describe_change(call, _target(webhook.webhook_id), None, webhook)
    return Answer(201, answer, {"ETag": etag(webhook)}, change)


async def list_(call: Call) -> Answer:
    """List webhooks, newest first."""
    page = call.query(WebhookPage)
    kinds = [WebhookKind[page.kind.upper()]] if page.kind else list(WebhookKind)
    before = read_number(_LIST, page.cursor)
    found = await webhooks.list_webhooks(
        call.session, call.parts.registry, call.tenant_id, kinds, before, page.limit + 1
    )
    reveal = call.reveals(page.reveal)
    listed, more = cut(found, page.limit, lambda webhook: write_number(_LIST, webhook.webhook_key))
    shown = [show_account_webhook(webhook, reveal=reveal, operator=call.operator) for webhook in listed]
    return Answer(200, answers.WebhookList(data=shown, next_cursor=more))


async def get(call: Call) -> Answer:
    """Show one webhook of any kind."""
    webhook = await webhooks.find_webhook(call.session, call.parts.registry, call.tenant_id, webhook_id(call))
    if webhook is None:
        raise not_found("webhook")
    pending = await webhooks.count_pending(call.session, webhook.webhook_key)
    reveal = call.reveals(call.query(Reveal).reveal)
    shown = show_webhook_detail(webhook, pending, reveal=reveal, operator=call.operator)
    return Answer(200, shown, {"ETag": etag(webhook)})


async def _lock_account(call: Call) -> StoredWebhook:
    webhook = await registrations.lock_account_webhook(
        call.session, call.parts.registry, call.tenant_id, webhook_id(call)
    )
    check_match(call, webhook)
    return webhook


async def patch(call: Call) -> Answer:
    """Change settings by a JSON merge patch."""
    existing = await _lock_account(call)
    request = patch_request(existing.settings, call.body(WebhookPatch))
    if problems := find_setting_problems(request.settings):
        raise Problem(422, "invalid_request", f"{problems[0].path}: {problems[0].reason}")
    done = await registrations.patch_webhook(call.session, call.parts.registry, existing, request)
    pending = await webhooks.count_pending(call.session, done.webhook.webhook_key)
    answer = show_webhook_detail(done.webhook, pending, reveal=True, operator=call.operator, secret=done.secret)
    change = describe_change(call, _target(done.webhook.webhook_id), done.before, done.webhook)
    return Answer(200, answer, {"ETag": etag(done.webhook)}, change)


async def delete(call: Call) -> Answer:
    """Retire an account webhook; what waits is canceled."""
    webhook = await _lock_account(call)
    await registrations.delete_webhook(call.session, call.parts.registry, webhook)
    return Answer(204, change=describe_change(call, _target(webhook.webhook_id), webhook, None))


async def _lock_any(call: Call) -> StoredWebhook:
    """Lock a webhook of any kind; its batch, if it has one, first."""
    registry = call.parts.registry
    found = await webhooks.find_webhook(call.session, registry, call.tenant_id, webhook_id(call))
    if found is not None and found.batch_key is not None:
        await batches.lock_batch_by_key(call.session, found.batch_key)
    webhook = found and await webhooks.lock_webhook(call.session, registry, call.tenant_id, found.webhook_id)
    if webhook is None:
        raise not_found("webhook")
    return webhook


async def pause(call: Call) -> Answer:
    """Hold deliveries."""
    return await pause_webhook(call, await _lock_any(call), _target(webhook_id(call)))


async def enable(call: Call) -> Answer:
    """Release deliveries, one trial first."""
    return await enable_webhook(call, await _lock_any(call), _target(webhook_id(call)))


async def rotate(call: Call) -> Answer:
    """Make a new secret."""
    return await rotate_webhook_secret(call, await _lock_any(call), _target(webhook_id(call)))


async def revoke(call: Call) -> Answer:
    """End the overlap of a rotation."""
    return await revoke_previous(call, await _lock_any(call), _target(webhook_id(call)))


async def test(call: Call) -> Answer:
    """Send one test message."""
    async with call.parts.database.session() as session:
        webhook = await webhooks.find_webhook(session, call.parts.registry, call.tenant_id, webhook_id(call))
    if webhook is None:
        raise not_found("webhook")
    return await send_test(call, webhook)
