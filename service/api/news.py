"""What a write changed, as log lines: of a webhook one for each state that it enters and one for its settings, of a
delivery and an operator pause one.

Belongs here: names and fields of these lines, which hold no URL but the origin, no secret and no header value. Does not
belong here: the audit entry (``views``) and writing the lines, which follows the commit (``dispatch``).
"""

from __future__ import annotations

from dataclasses import fields

from service.api.calls import Call, News
from service.domain.webhooks import WebhookSettings, WebhookState
from service.store.delivery_views import SeenDelivery
from service.store.operator_pauses import PauseTarget
from service.store.webhooks import StoredWebhook

_ENTERED = {
    WebhookState.ENABLED: "webhook_enabled",
    WebhookState.PAUSED: "webhook_paused",
    WebhookState.DISABLED: "webhook_disabled",
}
_SETTINGS = tuple(field.name for field in fields(WebhookSettings))


def compare_webhooks(call: Call, before: StoredWebhook | None, after: StoredWebhook | None) -> tuple[News, ...]:
    """The lines about a webhook that was made, changed or retired; none where everything is as it was."""
    if before is None or after is None:
        known = after or before
        event = "webhook_registered" if before is None else "webhook_deleted"
        return () if known is None else (tell_webhook(call, event, known),)
    told = []
    if after.standing.state is not before.standing.state:
        was = before.standing.state.value
        told.append(tell_webhook(call, _ENTERED[after.standing.state], after, was=was))
    if changed := _list_changed(before, after):
        told.append(tell_webhook(call, "webhook_changed", after, changed=changed))
    return tuple(told)


def tell_webhook(call: Call, event: str, webhook: StoredWebhook, **more: object) -> News:
    """One line about a webhook."""
    batch = call.path.get("batch_name")
    about: dict[str, object] = {} if batch is None else {"batch": batch}
    return News(
        event,
        {
            "webhook_id": webhook.webhook_id,
            **about,
            "kind": webhook.kind.word,
            "origin": webhook.origin,
            "state": webhook.standing.state.value,
            "revision": webhook.revision,
            **more,
        },
    )


def tell_delivery(event: str, before: SeenDelivery, after: SeenDelivery) -> News:
    """One line about a delivery."""
    about = {"batch": after.batch_name, "job_id": after.job_id}
    return News(
        event,
        {
            "delivery_id": f"dlv_{after.delivery_id}",
            "message_id": after.message_id,
            "webhook_id": after.webhook_id,
            **{name: value for name, value in about.items() if value is not None},
            "was": before.state,
            "state": after.state,
            "reason": after.reason,
            "attempts": after.attempts,
        },
    )


def tell_pause(event: str, target: PauseTarget, reason: str | None) -> News:
    """One line about an operator pause."""
    about = {} if target.host is None else {"host": target.host}
    return News(event, {"scope": target.scope, **about, "reason": reason})


def _list_changed(before: StoredWebhook, after: StoredWebhook) -> list[str]:
    """Names of what is different: settings, and keys without a word of what they are."""
    changed = [name for name in _SETTINGS if getattr(before.settings, name) != getattr(after.settings, name)]
    if before.keys.hmac != after.keys.hmac:
        changed.append("secret")
    if before.keys.ed25519 != after.keys.ed25519:
        changed.append("key_pair")
    return changed
