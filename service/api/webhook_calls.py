"""What calls about webhooks share: the id in the path, the entity tag, the audit entry, pause, enable and secrets."""

from __future__ import annotations

from datetime import timedelta

from service.api import answers
from service.api.calls import Answer, Call, Change
from service.api.models import RotateSecret
from service.api.news import compare_webhooks, tell_webhook
from service.api.problems import Problem, not_found
from service.api.views import audit_webhook, show_webhook_detail
from service.domain.signing import parse_secret
from service.store import operating, webhooks
from service.store.operating import Rotation
from service.store.signing_keys import public_key
from service.store.webhooks import StoredWebhook


def webhook_id(call: Call) -> str:
    """Return the id from the path. Raises Problem (404) for one that no webhook can have."""
    found = call.path["webhook_id"]
    if "\0" in found or not found:
        raise not_found("webhook")
    return found


def etag(webhook: StoredWebhook) -> str:
    """Return the entity tag of a revision."""
    return f'"{webhook.revision}"'


def check_match(call: Call, webhook: StoredWebhook | None) -> None:
    """Honour ``If-Match`` (RFC 9110, section 13.1.1); where there is no webhook, nothing matches. Raises Problem (412)."""
    header = call.request.headers.get("If-Match")
    if header is None or (webhook and header.strip() == "*"):
        return
    if webhook is None:
        raise Problem(412, "revision_mismatch", "There is no webhook yet.")
    if str(webhook.revision) not in {tag.strip().strip('"') for tag in header.split(",")}:
        detail = f"The webhook is at revision {webhook.revision}."
        raise Problem(412, "revision_mismatch", detail, headers={"ETag": etag(webhook)})


def describe_change(call: Call, target: str, before: StoredWebhook | None, after: StoredWebhook | None) -> Change:
    """Return the audit entry and the log lines of a webhook that was made, changed or retired."""
    return Change(target, audit_webhook(before), audit_webhook(after), news=compare_webhooks(call, before, after))


async def _show(call: Call, before: StoredWebhook, target: str) -> Answer:
    after = await webhooks.find_webhook(call.session, call.parts.registry, call.tenant_id, before.webhook_id)
    assert after is not None
    pending = await webhooks.count_pending(call.session, after.webhook_key)
    change = describe_change(call, target, before, after)
    shown = show_webhook_detail(after, pending, reveal=False, operator=call.operator)
    return Answer(200, shown, {"ETag": etag(after)}, change)


async def pause_webhook(call: Call, webhook: StoredWebhook, target: str) -> Answer:
    """Hold the webhook's deliveries."""
    await operating.pause(call.session, call.parts.registry, webhook)
    return await _show(call, webhook, target)


async def enable_webhook(call: Call, webhook: StoredWebhook, target: str) -> Answer:
    """Release the webhook's deliveries."""
    await operating.enable(call.session, call.parts.registry, webhook)
    return await _show(call, webhook, target)


def read_rotation(body: RotateSecret) -> Rotation:
    """Return what a rotation asks for."""
    key = None if body.secret is None else parse_secret(body.secret)
    return Rotation(key, timedelta(seconds=body.overlap_seconds), body.force)


def describe_rotation(body: RotateSecret) -> dict[str, object]:
    """Return what the audit log and the log line say of a rotation."""
    return {"overlap_seconds": body.overlap_seconds, "forced": body.force, "imported": body.secret is not None}


async def rotate_webhook_secret(call: Call, webhook: StoredWebhook, target: str) -> Answer:
    """Make a new secret the newest one, and show it."""
    body = call.body(RotateSecret)
    rotated = await operating.rotate_secret(call.session, call.parts.registry, webhook, read_rotation(body))
    pairs = rotated.keys.ed25519
    answer = answers.SecretAnswer(
        secret=rotated.secret,
        previous_valid_until=rotated.previous_until,
        public_key=public_key(pairs[0].key) if pairs else None,
    )
    after = describe_rotation(body)
    news = (tell_webhook(call, "webhook_secret_rotated", webhook, **after),)
    return Answer(200, answer, change=Change(target, None, after, news=news))


async def revoke_previous(call: Call, webhook: StoredWebhook, target: str) -> Answer:
    """Stop signing with older secrets."""
    revoked = await operating.revoke_previous_secret(call.session, call.parts.registry, webhook)
    news = (tell_webhook(call, "webhook_secret_revoked", webhook),) if revoked else ()
    return Answer(204, change=Change(target, None, {"revoked": revoked}, news=news))
