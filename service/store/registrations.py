"""Registering webhooks: the transaction scripts of ``PUT``, ``POST``, ``PATCH`` and ``DELETE``.

Belongs here: locking in the agreed order (batch, webhook, deliveries), asking ``domain.registrations``, writing what it
says. Does not belong here: pausing, enabling and secrets (``operating``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from service.domain.batches import Batch
from service.domain.deliveries import Reason, State
from service.domain.events import BatchRef
from service.domain.identity import job_group
from service.domain.registrations import (
    BatchFacts,
    KeyPairChange,
    Newest,
    PutPlan,
    PutRefused,
    WebhookRequest,
    plan_patch,
    plan_put,
)
from service.domain.signing import Secret, format_secret
from service.domain.targets import Target
from service.domain.webhooks import Signing, Standing, describe_standing
from service.ports import NewDelivery
from service.store import batches, queueing
from service.store.codes import STATES, Extra, Scope, WebhookKind, WebhookStateCode
from service.store.database import Row, Session
from service.store.registry import Refused, Registry
from service.store.signing_keys import SigningKeys
from service.store.webhook_health import clear_health
from service.store.webhooks import (
    NewWebhook,
    StoredWebhook,
    announce,
    find_batch_webhook,
    find_webhook,
    insert_webhook,
    lock_batch_webhook,
    lock_webhook,
    update_keys,
    update_settings,
)

_REFUSALS = {
    PutRefused.BATCH_ENDED: (409, "This incarnation of the batch has ended.", "batch_id"),
    PutRefused.SECRET_NOT_LIVE: (422, "The secret is none of the live ones; use rotate-secret to change it.", "secret"),
}


@dataclass(frozen=True, slots=True)
class Put:
    """What a ``PUT`` came to. ``secret`` is the text to show once, None when nothing new is to be shown."""

    webhook: StoredWebhook
    before: StoredWebhook | None
    batch: Batch
    plan: PutPlan
    delivered_generation: int | None
    delivery_queued: bool
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Changed:
    """An account webhook before and after; ``secret`` as in ``Put``."""

    webhook: StoredWebhook
    before: StoredWebhook | None
    secret: str | None = field(default=None, repr=False)


async def put_batch_webhook(
    session: Session, registry: Registry, tenant_id: str, ref: BatchRef, request: WebhookRequest
) -> Put:
    """Register the webhook of a batch, or replace what is registered. Raises Refused, Conflict."""
    target = registry.check_url(request.settings.url, tenant_id)
    batch = await batches.lock_or_open_batch(session, tenant_id, ref)
    existing = await lock_batch_webhook(session, registry, batch.key)
    delivered = await batches.delivered_generation(session, batch.key)
    facts = await _read_facts(session, batch, existing, delivered)
    known = None if existing is None else existing.registered
    plan = _accepted(plan_put(known, request, facts, registry.defaults, registry.clock.now()))
    secret = await _write_plan(session, registry, batch, existing, request, plan, target)
    if plan.new_revision:
        await batches.set_settle_seconds(session, batch, plan.settings.settle_seconds, registry.settling)
        await announce(session, tenant_id)
    webhook = await find_batch_webhook(session, registry, batch.key)
    assert webhook is not None
    queued = await _send_newest(session, registry, webhook, batch, plan)
    return Put(webhook, existing, batch, plan, delivered, queued, secret)


async def _write_plan(
    session: Session,
    registry: Registry,
    batch: Batch,
    existing: StoredWebhook | None,
    request: WebhookRequest,
    plan: PutPlan,
    target: Target,
) -> str | None:
    if existing is None:
        return await _create(session, registry, _new_batch_webhook(registry, batch, request, plan, target))
    return await _apply(session, registry, existing, plan, target)


def _accepted(plan: PutPlan | PutRefused) -> PutPlan:
    if isinstance(plan, PutRefused):
        status, sentence, name = _REFUSALS[plan]
        raise Refused(status, plan.value, sentence, name)
    return plan


async def _read_facts(
    session: Session, batch: Batch, existing: StoredWebhook | None, delivered: int | None
) -> BatchFacts:
    return BatchFacts(
        ended=batch.ended,
        finished=batch.finish > 0,
        delivered=delivered is not None and delivered >= batch.finish > 0,
        newest_state=await _find_newest_state(session, batch, existing),
    )


async def _find_newest_state(session: Session, batch: Batch, existing: StoredWebhook | None) -> State | None:
    if existing is None or batch.finish_message_id is None:
        return None
    row = await session.find("delivery_of_message", batch.finish_message_id, existing.webhook_key)
    if row is None:
        return None
    return State.IN_FLIGHT if row["on_wire"] else STATES[row["state"]]


def _new_batch_webhook(
    registry: Registry, batch: Batch, request: WebhookRequest, plan: PutPlan, target: Target
) -> NewWebhook:
    now = registry.clock.now()
    return NewWebhook(
        tenant_id=batch.tenant_id,
        webhook_id=registry.new_id("whk_"),
        kind=WebhookKind.BATCH,
        batch_key=batch.key,
        settings=plan.settings,
        target=target,
        keys=_first_keys(registry, request.secret, plan.key_pair, now),
        written_at=now,
    )


def _first_keys(registry: Registry, secret: bytes | None, pair: KeyPairChange, now: datetime) -> SigningKeys:
    first = registry.new_secret(now) if secret is None else Secret(secret, now)
    return SigningKeys((first,), (registry.new_seed(now),) if pair is KeyPairChange.ADD else ())


async def _create(session: Session, registry: Registry, new: NewWebhook) -> str:
    await insert_webhook(session, registry, new)
    return format_secret(new.keys.hmac[0].key)


async def _apply(
    session: Session, registry: Registry, existing: StoredWebhook, plan: PutPlan, target: Target
) -> str | None:
    """Write a plan for a webhook that exists; return a secret to show if the old ones could not be read."""
    if plan.settings is not existing.settings:
        await update_settings(session, registry, existing, plan.settings, target)
    if plan.standing != existing.standing:
        await set_standing(session, registry, existing.webhook_key, plan.standing)
    if plan.clear_health:
        await clear_health(
            session, existing.webhook_key, registry.clock.now(), trial=plan.release, other_receiver=plan.restart_waiting
        )
    if plan.restart_waiting:
        await session.execute("webhook_restart_deliveries", existing.webhook_key)
    if plan.release:
        await release(session, existing.webhook_key)
    if plan.restart_waiting:
        await session.execute("deliveries_wake")
    return await _rekey(session, registry, existing, plan.key_pair)


async def _rekey(session: Session, registry: Registry, existing: StoredWebhook, pair: KeyPairChange) -> str | None:
    now = registry.clock.now()
    if existing.broken:  # the old secrets cannot be read any more: sign with a new one, and show it
        lost = existing.settings.signing is Signing.ED25519 and pair is KeyPairChange.KEEP
        keys = _first_keys(registry, None, KeyPairChange.ADD if lost else pair, now)
        await update_keys(session, registry, existing, keys)
        return format_secret(keys.hmac[0].key)
    if pair is not KeyPairChange.KEEP:
        pairs = (registry.new_seed(now),) if pair is KeyPairChange.ADD else ()
        await update_keys(session, registry, existing, replace(existing.keys, ed25519=pairs))
    return None


async def set_standing(session: Session, registry: Registry, webhook_key: int, standing: Standing) -> None:
    """Move a webhook to another state; the revision goes up."""
    now = registry.clock.now()
    reason = standing.reason.value if standing.reason else None
    code = int(WebhookStateCode[standing.state.name])
    await session.execute("webhook_set_state", webhook_key, code, reason, describe_standing(standing, now), now)


async def release(session: Session, webhook_key: int) -> None:
    """Let held deliveries of an enabled webhook go."""
    await session.execute("webhook_release_deliveries", webhook_key, ["paused", "disabled", "internal_error"])
    await session.execute("deliveries_wake")


async def _send_newest(
    session: Session, registry: Registry, webhook: StoredWebhook, batch: Batch, plan: PutPlan
) -> bool:
    if plan.newest is Newest.NOTHING or batch.finish_message_id is None:
        return False
    if plan.newest is Newest.REQUEUE:
        row = await session.find("delivery_of_message", batch.finish_message_id, webhook.webhook_key)
        return row is not None and await revive(session, [row["delivery_id"]]) > 0
    return await _enqueue_message(session, registry, webhook, batch.finish_message_id)


def build_delivery(webhook: StoredWebhook, message: Row, extra: Extra = Extra.ORDINARY) -> NewDelivery:
    """Return the delivery of a stored message to a webhook: held while that is stopped, else due now."""
    scope = Scope(message["scope"])
    return NewDelivery(
        tenant_id=webhook.tenant_id,
        webhook_key=webhook.webhook_key,
        lane=webhook.lane,
        message_id=message["message_id"],
        body_at=message["body_at"],
        type=message["type"],
        scope=scope.word,
        group_key=_group_of(webhook.tenant_id, scope, message),
        batch_key=message["batch_key"],
        job_id=message["job_id"],
        generation=message["generation"],
        held=webhook.standing.state.hold,
        extra=extra.word,
    )


def _group_of(tenant_id: str, scope: Scope, message: Row) -> int | None:
    """Return the key under which deliveries of one batch or job supersede each other; None for the rest."""
    if scope is Scope.JOB:
        return job_group(tenant_id, message["job_id"] or "")
    key: int | None = message["batch_key"]
    return key if scope is Scope.BATCH else None


async def revive(session: Session, delivery_ids: list[int]) -> int:
    """Put finished deliveries back into the queue with a fresh schedule; return how many."""
    revived = await session.fetch("deliveries_revive", delivery_ids)
    if revived:
        await session.execute("deliveries_wake")
    return len(revived)


async def _enqueue_message(session: Session, registry: Registry, webhook: StoredWebhook, message_id: str) -> bool:
    """Queue a stored message for a webhook that has no delivery of it; False when its body is gone."""
    message = await session.find("message_lock", message_id, webhook.tenant_id)
    if message is None or message["expunged_at"] is not None:
        return False
    queued = await queueing.enqueue(session, [build_delivery(webhook, message)], on_superseded=registry.superseded)
    return bool(queued)


async def delete_batch_webhook(session: Session, registry: Registry, tenant_id: str, name: str) -> StoredWebhook | None:
    """Retire the registration of the newest incarnation; None when there is none."""
    batch = await batches.lock_batch(session, tenant_id, name)
    if batch is None:
        return None
    webhook = await lock_batch_webhook(session, registry, batch.key)
    if webhook is not None:
        await batches.set_settle_seconds(session, batch, None, registry.settling)
        await _retire(session, registry, webhook)
    return webhook


async def _retire(session: Session, registry: Registry, webhook: StoredWebhook) -> None:
    await session.execute("webhook_delete", webhook.webhook_key, registry.clock.now())
    canceled = await session.write("webhook_cancel_deliveries", webhook.webhook_key, Reason.WEBHOOK_DELETED.value)
    registry.finished("canceled", canceled)
    await announce(session, webhook.tenant_id)


async def create_webhook(
    session: Session, registry: Registry, tenant_id: str, webhook_id: str | None, request: WebhookRequest
) -> Changed:
    """Store an account webhook. Raises Refused: the id is taken, the tenant has too many, the URL is not allowed."""
    target = registry.check_url(request.settings.url, tenant_id)
    await session.value("tenant_lock", tenant_id)
    if webhook_id is not None and await find_webhook(session, registry, tenant_id, webhook_id) is not None:
        raise Refused(409, "id_taken", "A webhook with this id exists.", "id")
    limit = registry.max_webhooks_per_tenant
    if await session.value("webhook_count_account", tenant_id) >= limit:
        raise Refused(409, "too_many_webhooks", f"A tenant has at most {limit} account webhooks.")
    now = registry.clock.now()
    pair = KeyPairChange.ADD if request.settings.signing is Signing.ED25519 else KeyPairChange.KEEP
    keys = _first_keys(registry, request.secret, pair, now)
    public_id = webhook_id or registry.new_id("whk_")
    new = NewWebhook(tenant_id, public_id, WebhookKind.ACCOUNT, None, request.settings, target, keys, now)
    secret = await _create(session, registry, new)
    await announce(session, tenant_id)
    webhook = await find_webhook(session, registry, tenant_id, public_id)
    assert webhook is not None
    return Changed(webhook, None, secret)


async def patch_webhook(
    session: Session, registry: Registry, existing: StoredWebhook, request: WebhookRequest
) -> Changed:
    """Change an account webhook that the caller has locked; the URL rules are those of ``PUT``. Raises Refused."""
    target = registry.check_url(request.settings.url, existing.tenant_id)
    plan = _accepted(plan_patch(existing.registered, request, registry.defaults, registry.clock.now()))
    if not plan.new_revision and not existing.broken:
        return Changed(existing, existing)
    secret = await _apply(session, registry, existing, plan, target)
    if plan.newest is Newest.REQUEUE:
        failed = await session.fetch("webhook_newest_failed", existing.webhook_key)
        await revive(session, [row["delivery_id"] for row in failed])
    await announce(session, existing.tenant_id)
    webhook = await find_webhook(session, registry, existing.tenant_id, existing.webhook_id)
    assert webhook is not None
    return Changed(webhook, existing, secret)


async def lock_account_webhook(session: Session, registry: Registry, tenant_id: str, webhook_id: str) -> StoredWebhook:
    """Return an account webhook, locked. Raises Refused: 404, or 409 for another kind of webhook."""
    webhook = await lock_webhook(session, registry, tenant_id, webhook_id)
    if webhook is None:
        raise Refused(404, "not_found", "There is no such webhook.")
    if webhook.kind is not WebhookKind.ACCOUNT:
        detail = "This webhook belongs to a batch or came with a job; only account webhooks are changed by id."
        raise Refused(409, "not_an_account_webhook", detail)
    return webhook


async def delete_webhook(session: Session, registry: Registry, webhook: StoredWebhook) -> None:
    """Retire an account webhook that the caller has locked."""
    await _retire(session, registry, webhook)
