"""Webhooks' health as rows: read, changed under a lock, and the disabling that a change may bring.

Belongs here: the port of ``delivery.observing`` and the rate limits' buckets. Does not belong here: the rules
(``domain.health``) and starting over after an enable (``webhook_health``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any, Final

import orjson

from service.delivery.observing import Disabled, Disabling, HealthChange, HealthRow
from service.domain.health import Breaker, Health
from service.domain.webhooks import Standing, WebhookState, describe_standing
from service.store.codes import BreakerCode, WebhookStateCode
from service.store.database import Database, Row, Session
from service.store.statements import columns
from service.store.webhooks import announce, hold_deliveries

_INSTANTS: Final = ("enabled_at", "last_success_at", "first_failure_at", "probe_at")
_FIELDS: Final = frozenset(field.name for field in fields(Health))
_BREAKERS: Final = {breaker: int(BreakerCode[breaker.name]) for breaker in Breaker}


def dump_health(health: Health) -> bytes:
    """Health as ``webhook_health.health`` holds it."""
    return orjson.dumps(health)


def read_health(stored: bytes | None) -> Health | None:
    """Read it back; None for a webhook without health, or with one that cannot be understood."""
    if stored is None:
        return None
    try:
        return _parse_health(orjson.loads(stored))
    except (ValueError, TypeError, LookupError):
        return None


def _parse_health(stored: Mapping[str, Any]) -> Health:
    """Read health, leaving out fields that this release does not know: a later one may have written it."""
    known = {name: value for name, value in stored.items() if name in _FIELDS}
    instants = {name: datetime.fromisoformat(known[name]) for name in _INSTANTS if known.get(name) is not None}
    return Health(**{**known, **instants, "breaker": Breaker(stored["breaker"])})


def read_epoch(at: datetime | None) -> float | None:
    """An instant as seconds since 1970."""
    return None if at is None else at.timestamp()


class HealthKeeping:
    """``HealthStore`` and ``RateStore`` on PostgreSQL."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def change_health(
        self, webhook_keys: Collection[int], change: Callable[[HealthRow], HealthChange | None]
    ) -> list[Disabled]:
        """Lock these webhooks, ask for each row's change, write the changes; return what was disabled by it.

        What waits for a disabled webhook is held in the same transaction, up to 10,000 deliveries; workers hold the
        rest when they come upon it.
        """
        keys = sorted(webhook_keys)
        async with self._database.transaction() as session:
            await session.execute("health_prepare", keys)
            rows = await session.fetch("health_lock", keys)
            changes = [(row, made) for row in rows if (made := change(_read_row(row))) is not None]
            await session.execute("health_save", *columns((_saved_row(row, made) for row, made in changes), 8))
            return await _disable(session, [(row, made) for row, made in changes if made.disable is not None])

    async def draw(self, wanted: Mapping[int, int]) -> Mapping[int, int]:
        """Draw attempts per webhook key from the buckets of their rate limits; return how many were granted."""
        keys = sorted(wanted)
        async with self._database.session() as session:
            await session.execute("health_prepare", keys)
            granted = await session.fetch("rate_draw", keys, [wanted[key] for key in keys])
        return {row["webhook_key"]: row["granted"] for row in granted}


def _read_row(row: Row) -> HealthRow:
    return HealthRow(
        webhook_key=row["webhook_key"],
        webhook_id=row["webhook_id"],
        tenant_id=row["tenant_id"],
        revision=row["revision"],
        enabled=row["state"] == WebhookStateCode.ENABLED,
        state_at=row["state_at"],
        health=read_health(row["health"]),
        held_until=read_epoch(row["held_until"]),
    )


def _saved_row(row: Row, change: HealthChange) -> tuple[object, ...]:
    return (
        row["webhook_key"],
        dump_health(change.health),
        change.held_until,
        _BREAKERS[change.health.breaker],
        read_epoch(change.health.probe_at),
        change.last_success,
        change.last_failure,
        change.last_error,
    )


async def _disable(session: Session, stopping: Sequence[tuple[Row, HealthChange]]) -> list[Disabled]:
    if not stopping:
        return []
    now: datetime = await session.value("transaction_now")
    rows = (_disabled_row(row, wanted, now) for row, wanted in _list_disablings(stopping))
    stopped = {row["webhook_key"] for row in await session.fetch("webhooks_disable", *columns(rows, 5))}
    disabled = [
        Disabled(row["webhook_key"], row["webhook_id"], row["tenant_id"], row["origin"], wanted.reason)
        for row, wanted in _list_disablings(stopping)
        if row["webhook_key"] in stopped
    ]
    for each in disabled:
        await hold_deliveries(session, each.webhook_key, WebhookState.DISABLED)
        await announce(session, each.tenant_id)
    return disabled


def _list_disablings(stopping: Sequence[tuple[Row, HealthChange]]) -> list[tuple[Row, Disabling]]:
    return [(row, change.disable) for row, change in stopping if change.disable is not None]


def _disabled_row(row: Row, wanted: Disabling, now: datetime) -> tuple[object, ...]:
    detail = describe_standing(Standing(WebhookState.DISABLED, wanted.reason), now)
    return (row["webhook_key"], row["revision"], wanted.reason, detail, wanted.untold)
