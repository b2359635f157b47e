"""Messages as the API reads and expunges them, and test sends.

Belongs here: bodies by id, and the one message that is made here. Does not belong here: messages about work (ingest).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import orjson

from service.domain.deliveries import Reason
from service.domain.messages import format_instant
from service.ports import NewDelivery, NewMessage
from service.store import queueing
from service.store.codes import Extra, Scope
from service.store.database import Row, Session
from service.store.registry import Refused, Registry
from service.store.webhooks import StoredWebhook
from service.store.work import insert_messages

TEST_TYPE = "webhook.test"
NIL = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message's row and its body, None once it was expunged or has aged out."""

    row: Row
    body: bytes | None


async def find_message(session: Session, tenant_id: str, message_id: str) -> StoredMessage | None:
    """Return one message of a tenant."""
    row = await session.find("message_find", message_id, tenant_id)
    if row is None:
        return None
    body = None
    if row["expunged_at"] is None:
        body = await session.value("message_body", message_id, row["body_at"])
    return StoredMessage(row, body)


async def expunge_body(session: Session, registry: Registry, tenant_id: str, message_id: str) -> bool:
    """Destroy a body for good; deliveries that still wait are canceled. Raises Refused (404); False on a repeat."""
    row = await session.find("message_lock", message_id, tenant_id)
    if row is None:
        raise Refused(404, "not_found", "There is no such message.")
    waiting = await session.fetch("deliveries_of_message", message_id)
    ids = [delivery["delivery_id"] for delivery in waiting if not delivery["done"]]
    registry.finished("canceled", await session.write("deliveries_cancel", ids, Reason.BY_REQUEST.value))
    await session.execute("message_expunge", message_id, row["body_at"], registry.clock.now())
    return row["expunged_at"] is None


def build_test_body(tenant_id: str, at: datetime) -> bytes:
    """Build the signed body of a test: it says so itself, and its ids are nil."""
    data = {"scope": "batch", "tenant_id": tenant_id, "batch": {"name": "test", "id": NIL}, "job_id": NIL, "jobs": []}
    return orjson.dumps({"type": TEST_TYPE, "timestamp": format_instant(at), "test": True, "data": data})


async def queue_test(session: Session, registry: Registry, webhook: StoredWebhook) -> int:
    """Queue one test delivery, whatever the webhook's state; return its id.

    The webhook is held until the transaction ends. Raises Refused (404) when it was deleted or forgotten meanwhile.
    """
    if await session.find("webhook_hold", webhook.webhook_key) is None:
        raise Refused(404, "not_found", "There is no such webhook.")
    now: datetime = await session.value("transaction_now")
    body = build_test_body(webhook.tenant_id, now)
    message_id = registry.new_id("msg_")
    message = NewMessage(
        message_id, webhook.tenant_id, TEST_TYPE, Scope.NONE.word, None, None, 0, "webhookd", now, body
    )
    await insert_messages(session, [message], now)
    delivery = NewDelivery(
        tenant_id=webhook.tenant_id,
        webhook_key=webhook.webhook_key,
        lane=webhook.lane,
        message_id=message_id,
        body_at=now,
        type=TEST_TYPE,
        scope=Scope.NONE.word,
        group_key=None,
        batch_key=None,
        job_id=None,
        generation=0,
        extra=Extra.TEST.word,
    )
    queued = await queueing.enqueue(session, [delivery])
    return queued[0].delivery_id
