"""Sending a batch's newest finish again.

Belongs here: the transaction script of ``/renotify``. Does not belong here: redelivering one delivery.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from service.domain.batches import Batch
from service.ports import NewMessage
from service.store import batches, queueing
from service.store.codes import LiveState, Scope
from service.store.database import Row, Session
from service.store.registrations import revive
from service.store.registry import Refused, Registry
from service.store.webhooks import lock_batch_webhook
from service.store.work import insert_messages


@dataclass(frozen=True, slots=True)
class Renotified:
    """What is on its way: the message and to how many webhooks."""

    batch: Batch
    message_id: str
    deliveries: int


@dataclass(frozen=True, slots=True)
class _Sending:
    """The finish to send, the webhooks to send it to, and its deliveries so far."""

    batch: Batch
    message: Row
    webhooks: Sequence[Row]
    deliveries: Sequence[Row]


async def renotify(
    session: Session, registry: Registry, tenant_id: str, name: str, *, force: bool, new_id: bool
) -> Renotified:
    """Queue the newest finish again. Raises Refused: 404, or 409 without a finish or while a delivery is pending."""
    batch = await batches.lock_batch(session, tenant_id, name)
    if batch is None:
        raise Refused(404, "not_found", "There is no such batch.")
    sending = await _prepare(session, registry, batch)
    if not force and any(_is_pending(row) for row in sending.deliveries):
        raise Refused(
            409, "delivery_pending", "A delivery of this finish is pending; repeat with force to start it over."
        )
    message_id = await _copy_message(session, registry, sending) if new_id else sending.message["message_id"]
    again = await (
        _send_copy(session, registry, sending, message_id) if new_id else _send_again(session, registry, sending)
    )
    await session.execute("deliveries_wake")
    return Renotified(batch, message_id, again)


def _is_pending(row: Row) -> bool:
    return not row["done"] and (row["on_wire"] or row["state"] != LiveState.HELD)


async def _prepare(session: Session, registry: Registry, batch: Batch) -> _Sending:
    own = await lock_batch_webhook(session, registry, batch.key)
    deliveries = await session.fetch("deliveries_of_message", batch.finish_message_id)
    keys = {row["webhook_key"] for row in deliveries} | ({own.webhook_key} if own else set())
    webhooks = await session.fetch("webhook_lock_by_keys", sorted(keys))
    message = await session.find("message_lock", batch.finish_message_id, batch.tenant_id)
    if batch.ended or message is None:
        raise Refused(409, "no_finish", "The batch has no finish to send.")
    if message["expunged_at"] is not None:
        raise Refused(409, "body_gone", "The body of the newest finish was expunged.")
    live = {row["webhook_key"] for row in webhooks}
    return _Sending(batch, message, webhooks, [row for row in deliveries if row["webhook_key"] in live])


async def _send_again(session: Session, registry: Registry, sending: _Sending) -> int:
    waiting = [row["delivery_id"] for row in sending.deliveries if not row["done"]]
    done = [row["delivery_id"] for row in sending.deliveries if row["done"]]
    has = {row["webhook_key"] for row in sending.deliveries}
    new = [webhook for webhook in sending.webhooks if webhook["webhook_key"] not in has]
    refreshed: int = await session.value("deliveries_refresh", waiting)
    deliveries = [queueing.build_batch_delivery(webhook, sending.message) for webhook in new]
    queued = await queueing.enqueue(session, deliveries, on_superseded=registry.superseded)
    return refreshed + await revive(session, done) + len(queued)


async def _copy_message(session: Session, registry: Registry, sending: _Sending) -> str:
    """Store the same finish under another id, which becomes the batch's newest message."""
    message = sending.message
    stored = await session.find("message_body", message["message_id"], message["body_at"])
    if stored is None:
        raise Refused(409, "body_gone", "The body of the newest finish is gone.")
    copy = NewMessage(
        message_id=registry.new_id("msg_"),
        tenant_id=message["tenant_id"],
        type=message["type"],
        scope=Scope.BATCH.word,
        batch_key=sending.batch.key,
        job_id=None,
        generation=message["generation"],
        source=message["source"],
        finished_at=message["finished_at"],
        body=stored["body"],
        renotified=True,
        trace=stored["trace"],
    )
    await insert_messages(session, [copy], await session.value("transaction_now"))
    await session.execute("batch_set_finish_message", sending.batch.key, copy.message_id)
    registry.made(copy.scope, copy.renotified)
    return copy.message_id


async def _send_copy(session: Session, registry: Registry, sending: _Sending, message_id: str) -> int:
    copy = {**sending.message, "message_id": message_id, "body_at": await session.value("transaction_now")}
    new = [queueing.build_batch_delivery(webhook, copy) for webhook in sending.webhooks]
    return len(await queueing.enqueue(session, new, on_superseded=registry.superseded))
