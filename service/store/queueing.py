"""Putting deliveries into the queue, for everyone who makes them: ingest, the API, upkeep.

Belongs here: the writes that make a delivery exist. Does not belong here: taking deliveries out (``deliveries``) and
deciding who gets one (``domain.routing``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from service.ports import NewDelivery, QueuedDelivery
from service.store.codes import WEBHOOK_STATES, Extra, Scope
from service.store.database import Row, Session
from service.store.statements import columns

_SCOPES = {scope.word: int(scope) for scope in Scope}
_EXTRAS = {extra.word: int(extra) for extra in Extra}


async def enqueue(
    session: Session,
    deliveries: Sequence[NewDelivery],
    *,
    wake: bool = True,
    on_superseded: Callable[[int], object] = lambda _: None,
) -> list[QueuedDelivery]:
    """Queue deliveries inside the caller's transaction, superseding older ones of the same work and webhook.

    A message that is queued for a webhook already stays as it is and is not returned. The caller makes sure that the
    message has no finished delivery for the webhook. Workers are told when the transaction commits, unless the caller
    does it (``wake`` false): a NOTIFY inside makes commits wait for each other. ``on_superseded`` is told how many ended.
    """
    if not deliveries:
        return []
    older = await _supersede(session, [d for d in deliveries if d.group_key is not None and not d.fresh])
    waits = {(row["group_key"], row["webhook_key"]): row["delivery_id"] for row in older if row["on_wire"]}
    on_superseded(sum(not row["on_wire"] for row in older))
    rows = [_row(d, waits.get((d.group_key, d.webhook_key))) for d in deliveries]
    queued = await session.fetch("deliveries_insert", rows)
    result = [QueuedDelivery(q["delivery_id"], q["webhook_key"], q["message_id"], q["due"]) for q in queued]
    if wake and any(q.due for q in result):
        await session.execute("deliveries_wake")
    return result


def build_batch_delivery(webhook: Row, message: Row) -> NewDelivery:
    """Return the delivery of a batch's message to a webhook: held while that is stopped, else due now."""
    return NewDelivery(
        tenant_id=message["tenant_id"],
        webhook_key=webhook["webhook_key"],
        lane=webhook["lane"],
        message_id=message["message_id"],
        body_at=message["body_at"],
        type=message["type"],
        scope=Scope.BATCH.word,
        group_key=message["batch_key"],
        batch_key=message["batch_key"],
        job_id=None,
        generation=message["generation"],
        held=WEBHOOK_STATES[webhook["state"]].hold,
    )


async def _supersede(session: Session, deliveries: Sequence[NewDelivery]) -> list[Any]:
    if not deliveries:
        return []
    rows = ((d.group_key, d.webhook_key, d.generation, d.message_id) for d in deliveries)
    return await session.fetch("deliveries_supersede", *columns(rows, 4))


def _row(d: NewDelivery, waits_for: int | None) -> tuple[object, ...]:
    return (
        d.tenant_id,
        d.webhook_key,
        d.lane,
        d.message_id,
        d.body_at,
        d.type,
        _SCOPES[d.scope],
        d.group_key,
        d.batch_key,
        d.job_id,
        d.generation,
        d.held,
        waits_for,
        d.lease_token,
        d.lease_until,
        _EXTRAS[d.extra],
    )
