"""Pausing, enabling and changing secrets of webhooks that the caller has locked.

Belongs here: the transaction scripts of ``/pause``, ``/enable``, ``/rotate-secret``, ``/revoke-previous-secret`` and of
the tenant's default secret. Does not belong here: registering (``registrations``).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from service.domain.messages import format_instant
from service.domain.signing import (
    RotationProblem,
    RotationRefused,
    Secret,
    format_secret,
    list_live,
    revoke_previous,
    rotate,
)
from service.domain.webhooks import Signing, WebhookEvent, find_move
from service.sealing import Undecryptable
from service.store.codes import WebhookKind
from service.store.database import Row, Session
from service.store.registrations import release, set_standing
from service.store.registry import Refused, Registry
from service.store.signing_keys import SigningKeys, seal_keys, unseal_keys
from service.store.webhook_health import clear_health, clear_hold
from service.store.webhooks import StoredWebhook, announce, hold_deliveries, update_keys


@dataclass(frozen=True, slots=True)
class Rotation:
    """A request to rotate: the key bytes if the caller brought them, the overlap, and whether it may cut one short."""

    key: bytes | None = field(repr=False)
    overlap: timedelta
    force: bool


@dataclass(frozen=True, slots=True)
class Rotated:
    """The new secret, shown once, and until when the one before stays valid."""

    secret: str = field(repr=False)
    previous_until: datetime | None
    keys: SigningKeys = field(repr=False)


async def pause(session: Session, registry: Registry, webhook: StoredWebhook) -> bool:
    """Hold the webhook's deliveries; False when it is paused already."""
    move = find_move(webhook.standing, WebhookEvent.PAUSE)
    if move is None:
        return False
    await set_standing(session, registry, webhook.webhook_key, move.to)
    await hold_deliveries(session, webhook.webhook_key, move.to.state)
    await announce(session, webhook.tenant_id)
    return True


async def enable(session: Session, registry: Registry, webhook: StoredWebhook) -> bool:
    """Let held deliveries go, one trial first; False when it is enabled already, which still ends holds."""
    move = find_move(webhook.standing, WebhookEvent.ENABLE)
    if move is None:
        await clear_hold(session, webhook.webhook_key)
    else:
        await set_standing(session, registry, webhook.webhook_key, move.to)
        now = registry.clock.now()
        await clear_health(session, webhook.webhook_key, now, trial=move.trial, other_receiver=False)
    await release(session, webhook.webhook_key)
    await announce(session, webhook.tenant_id)
    return move is not None


def _rotated(old: SigningKeys, wanted: Rotation, key: bytes, seed: bytes, now: datetime) -> SigningKeys:
    hmac = rotate(old.hmac, key, now, overlap=wanted.overlap, force=wanted.force)
    if isinstance(hmac, RotationRefused):
        raise _refusal(hmac)
    if not old.ed25519:
        return SigningKeys(hmac)
    pairs = rotate(old.ed25519, seed, now, overlap=wanted.overlap, force=True)
    assert not isinstance(pairs, RotationRefused)  # the seed is new and random
    return SigningKeys(hmac, pairs)


def _refusal(refused: RotationRefused) -> Refused:
    if refused.problem is RotationProblem.SAME_SECRET:
        return Refused(409, refused.problem.value, "This secret is live already.", "secret")
    until = f" until {format_instant(refused.until)}" if refused.until else ""
    detail = f"The secret before the last rotation is valid{until}; repeat with force to cut that short."
    return Refused(409, refused.problem.value, detail)


def _make(registry: Registry, old: SigningKeys, wanted: Rotation) -> Rotated:
    now = registry.clock.now()
    key = wanted.key or registry.new_secret(now).key
    keys = _rotated(old, wanted, key, registry.new_seed(now).key, now)
    previous = [secret.expires_at for secret in keys.hmac if secret.expires_at is not None]
    return Rotated(format_secret(key), max(previous, default=None), keys)


async def rotate_secret(session: Session, registry: Registry, webhook: StoredWebhook, wanted: Rotation) -> Rotated:
    """Make a new secret the newest one. Raises Refused (409)."""
    if webhook.kind is WebhookKind.ONE_SHOT:
        detail = "One-shot URLs are signed with the tenant's default secret: use /v1/signing-keys/rotate."
        raise Refused(409, "no_own_secret", detail)
    old = webhook.keys
    if webhook.broken and webhook.settings.signing is Signing.ED25519:
        old = SigningKeys((), (registry.new_seed(registry.clock.now()),))
    rotated = _make(registry, old, wanted)
    await update_keys(session, registry, webhook, rotated.keys)
    await announce(session, webhook.tenant_id)
    return rotated


async def revoke_previous_secret(session: Session, registry: Registry, webhook: StoredWebhook) -> bool:
    """Stop signing with all but the newest secret; False when there was no other."""
    now = registry.clock.now()
    live = len(list_live(webhook.keys.hmac, now)) + len(list_live(webhook.keys.ed25519, now))
    keys = replace(
        webhook.keys,
        hmac=revoke_previous(webhook.keys.hmac, now),
        ed25519=revoke_previous(webhook.keys.ed25519, now),
    )
    if live == len(keys.hmac) + len(keys.ed25519):
        return False
    await update_keys(session, registry, webhook, keys)
    await announce(session, webhook.tenant_id)
    return True


async def find_default_secrets(session: Session, registry: Registry, tenant_id: str) -> tuple[Secret, ...]:
    """Return the tenant's live default secrets, newest first. Raises Undecryptable."""
    sealed = await session.value("tenant_secrets", tenant_id)
    return list_live(unseal_keys(registry.sealer, tenant_id, "", sealed).hmac, registry.clock.now())


async def rotate_default_secret(session: Session, registry: Registry, tenant_id: str, wanted: Rotation) -> Rotated:
    """Rotate the tenant's default secret; the first time, deliveries that waited for one go out. Raises Refused."""
    sealed = await session.value("tenant_lock", tenant_id)
    old = unseal_keys(registry.sealer, tenant_id, "", sealed)
    rotated = _make(registry, old, wanted)
    await session.execute("tenant_set_secrets", tenant_id, seal_keys(registry.sealer, tenant_id, "", rotated.keys))
    await session.execute("webhook_touch_one_shots", tenant_id)
    await session.execute("webhook_release_unsigned", tenant_id)
    await announce(session, tenant_id)
    await session.execute("deliveries_wake")
    return rotated


async def list_pairs(
    session: Session, registry: Registry, tenant_id: str, before: int, limit: int
) -> list[tuple[Row, SigningKeys]]:
    """Return the tenant's webhooks with an Ed25519 pair, newest first, with their keys; none where they do not open."""
    rows = await session.fetch("webhook_list_pairs", tenant_id, before, limit)
    return [(row, _open(registry, tenant_id, row)) for row in rows]


def _open(registry: Registry, tenant_id: str, row: Row) -> SigningKeys:
    try:
        return unseal_keys(registry.sealer, tenant_id, row["webhook_id"], row["secrets"])
    except Undecryptable:
        return SigningKeys()
