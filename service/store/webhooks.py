"""Webhooks as rows: reading them with their sealed columns opened, and writing them.

Belongs here: the one place that turns a row into a registration and back. Does not belong here: what a request changes
(``registrations``, ``operating``) and what workers read (``catalog``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from service.domain.registrations import Registered
from service.domain.targets import Target
from service.domain.webhooks import DisableReason, Filters, Scope, Signing, Standing, WebhookSettings, WebhookState
from service.sealing import Sealer, Undecryptable
from service.store.codes import WEBHOOK_STATES, WebhookKind
from service.store.database import Row, Session
from service.store.registry import Registry
from service.store.signing_keys import SigningKeys, seal_keys, unseal_keys
from service.store.webhook_seals import Headers, hash_url, open_headers, seal_url, store_headers, unseal_url

HELD_AT_ONCE: Final = 10_000


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """One registration, opened. ``broken``: its sealed columns do not decrypt, so URL, headers and keys are empty."""

    webhook_key: int
    tenant_id: str
    webhook_id: str
    kind: WebhookKind
    batch_key: int | None
    lane: int
    standing: Standing
    state_detail: str | None
    state_at: datetime
    revision: int
    origin: str
    settings: WebhookSettings
    keys: SigningKeys = field(repr=False)
    created_at: datetime
    written_at: datetime
    held_until: datetime | None
    last_success_at: datetime | None
    last_failure_at: datetime | None
    last_error: str | None
    broken: bool = False

    @property
    def registered(self) -> Registered:
        """The webhook as the registration rules see it."""
        return Registered(self.settings, self.standing, self.keys.hmac)


@dataclass(frozen=True, slots=True)
class NewWebhook:
    """A registration to be stored."""

    tenant_id: str
    webhook_id: str
    kind: WebhookKind
    batch_key: int | None
    settings: WebhookSettings
    target: Target
    keys: SigningKeys = field(repr=False)
    written_at: datetime


def _open(row: Row, sealer: Sealer) -> tuple[str, Headers, SigningKeys, bool]:
    tenant_id, webhook_id = row["tenant_id"], row["webhook_id"]
    try:
        return (
            unseal_url(sealer, tenant_id, webhook_id, row["url"]),
            open_headers(sealer, tenant_id, webhook_id, row["custom_headers"]),
            unseal_keys(sealer, tenant_id, webhook_id, row["secrets"]),
            False,
        )
    except Undecryptable:
        return "", (), SigningKeys(), True


def _settings(row: Row, url: str, headers: Headers) -> WebhookSettings:
    return WebhookSettings(
        url=url,
        description=row["description"] or "",
        custom_headers=headers,
        settle_seconds=row["settle_seconds"],
        notify_if_done=row["notify_if_done"],
        retry_schedule=None if row["retry_schedule"] is None else tuple(row["retry_schedule"]),
        timeout_seconds=row["timeout_seconds"],
        max_in_flight=row["max_in_flight"],
        rate_limit=row["rate_limit"],
        signing=Signing(row["signing"]),
        filters=Filters(
            tuple(row["event_types"] or ()),
            frozenset(Scope(scope) for scope in row["scopes"] or ()),
            tuple(row["batch_names"] or ()),
        ),
    )


def _standing(row: Row) -> Standing:
    state = WEBHOOK_STATES[row["state"]]
    disabled = state is WebhookState.DISABLED
    return Standing(state, DisableReason(row["state_reason"]) if disabled else None)


def read_webhook(row: Row, sealer: Sealer) -> StoredWebhook:
    """Turn a row of ``webhook_*.sql`` into a registration; never raises for bytes that do not decrypt."""
    url, headers, keys, broken = _open(row, sealer)
    return StoredWebhook(
        webhook_key=row["webhook_key"],
        tenant_id=row["tenant_id"],
        webhook_id=row["webhook_id"],
        kind=WebhookKind(row["kind"]),
        batch_key=row["batch_key"],
        lane=row["lane"],
        standing=_standing(row),
        state_detail=row["state_detail"],
        state_at=row["state_at"],
        revision=row["revision"],
        origin=row["origin"],
        settings=_settings(row, url, headers),
        keys=keys,
        created_at=row["created_at"],
        written_at=row["written_at"],
        held_until=row["held_until"],
        last_success_at=row["last_success_at"],
        last_failure_at=row["last_failure_at"],
        last_error=row["last_error"],
        broken=broken,
    )


def _setting_columns(settings: WebhookSettings) -> tuple[object, ...]:
    filters = settings.filters
    settle = settings.settle_seconds
    return (
        settings.signing.value,
        settings.description or None,
        None if settle is None else int(settle),
        settings.notify_if_done,
        None if settings.retry_schedule is None else list(settings.retry_schedule),
        settings.timeout_seconds,
        settings.max_in_flight,
        settings.rate_limit,
        list(filters.event_types) or None,
        sorted(filters.scopes) or None,
        list(filters.batch_names) or None,
    )


async def insert_webhook(session: Session, registry: Registry, new: NewWebhook) -> int:
    """Store a registration; return its key."""
    sealer, tenant_id, webhook_id, settings = registry.sealer, new.tenant_id, new.webhook_id, new.settings
    key: int = await session.value(
        "webhook_insert",
        tenant_id,
        webhook_id,
        int(new.kind),
        new.batch_key,
        seal_url(sealer, tenant_id, webhook_id, settings.url),
        hash_url(tenant_id, settings.url),
        new.target.origin,
        store_headers(sealer, tenant_id, webhook_id, settings.custom_headers),
        seal_keys(sealer, tenant_id, webhook_id, new.keys),
        *_setting_columns(settings),
        new.written_at,
    )
    return key


async def update_settings(
    session: Session, registry: Registry, old: StoredWebhook, settings: WebhookSettings, target: Target
) -> None:
    """Replace all settings; the revision goes up."""
    sealer, tenant_id, webhook_id = registry.sealer, old.tenant_id, old.webhook_id
    await session.execute(
        "webhook_update",
        old.webhook_key,
        seal_url(sealer, tenant_id, webhook_id, settings.url),
        hash_url(tenant_id, settings.url),
        target.origin,
        store_headers(sealer, tenant_id, webhook_id, settings.custom_headers),
        *_setting_columns(settings),
        registry.clock.now(),
    )


async def update_keys(session: Session, registry: Registry, old: StoredWebhook, keys: SigningKeys) -> None:
    """Replace the secrets; the revision goes up."""
    content = seal_keys(registry.sealer, old.tenant_id, old.webhook_id, keys)
    await session.execute("webhook_update_keys", old.webhook_key, content)


async def hold_deliveries(session: Session, webhook_key: int, state: WebhookState) -> None:
    """Hold what waits for a webhook that is now paused or disabled; workers hold the rest when they come upon it."""
    await session.value("deliveries_hold_webhook", webhook_key, state.value, HELD_AT_ONCE)


async def announce(session: Session, tenant_id: str) -> None:
    """Tell routing (by the tenant's version) and workers (at commit) that webhooks have changed."""
    await session.execute("webhook_bump_routing", tenant_id)
    await session.execute("webhooks_notify")


async def _read_one(session: Session, registry: Registry, name: str, *args: object) -> StoredWebhook | None:
    row = await session.find(name, *args)
    return read_webhook(row, registry.sealer) if row else None


async def find_webhook(session: Session, registry: Registry, tenant_id: str, webhook_id: str) -> StoredWebhook | None:
    """Return a live webhook of any kind by its public id."""
    return await _read_one(session, registry, "webhook_find", tenant_id, webhook_id)


async def lock_webhook(session: Session, registry: Registry, tenant_id: str, webhook_id: str) -> StoredWebhook | None:
    """Return a live webhook by its public id, locked until the transaction ends."""
    return await _read_one(session, registry, "webhook_lock", tenant_id, webhook_id)


async def find_batch_webhook(session: Session, registry: Registry, batch_key: int) -> StoredWebhook | None:
    """Return the live registration of a batch."""
    return await _read_one(session, registry, "webhook_find_of_batch", batch_key)


async def lock_batch_webhook(session: Session, registry: Registry, batch_key: int) -> StoredWebhook | None:
    """Return the live registration of a batch whose row is locked already, locked."""
    return await _read_one(session, registry, "webhook_lock_of_batch", batch_key)


async def list_webhooks(
    session: Session, registry: Registry, tenant_id: str, kinds: Sequence[WebhookKind], before: int, limit: int
) -> list[StoredWebhook]:
    """Return live webhooks of these kinds, newest first, made before ``before``."""
    rows = await session.fetch("webhook_list", tenant_id, [int(kind) for kind in kinds], before, limit)
    return [read_webhook(row, registry.sealer) for row in rows]


async def count_pending(session: Session, webhook_key: int) -> int:
    """Count unfinished deliveries, at most 10,000."""
    count: int = await session.value("webhook_count_pending", webhook_key)
    return count
