"""A registration on its way from an incarnation that has ended to the next one (batch rule 9).

Belongs here: which one that is, and what the registration finds there. Does not belong here: which registrations stay
behind (``batches_retire``).
"""

from __future__ import annotations

from dataclasses import replace

from service.domain.batches import Batch
from service.domain.events import BatchRef
from service.domain.incarnations import open_incarnation
from service.ports import Conflict
from service.store import queueing
from service.store.batch_rows import INSERT_COLUMNS, new_batch_row
from service.store.database import Row, Session
from service.store.statements import columns


async def move_registration(session: Session, ended: Batch, webhook_key: int) -> None:
    """Hand a registration to the newest incarnation after ``ended``; it gets the finish that nobody was told of.

    Where that one has a registration of its own, this one is retired. Raises Conflict.
    """
    following = await session.find("batches_find_following", ended.tenant_id, ended.name, ended.seq)
    if following is None or following["ended_by"] is not None:
        await session.find("webhooks_move_batch", webhook_key, await _open(session, ended, following))
    elif following["registered"]:
        await session.execute("webhook_delete", webhook_key, await session.value("transaction_now"))
    else:
        moved = await session.find("webhooks_move_batch", webhook_key, following["batch_key"])
        if moved is not None and moved["notify_if_done"] and following["untold"]:
            await _tell(session, ended.tenant_id, following, moved)


async def _open(session: Session, ended: Batch, newest: Row | None) -> int:
    last = ended if newest is None else replace(ended, seq=newest["seq"], ended_by=newest["ended_by"])
    opened = open_incarnation([last], ended.tenant_id, BatchRef(ended.name), -1)
    rows = await session.fetch("batches_insert", *columns([new_batch_row(opened)], INSERT_COLUMNS))
    if not rows:
        msg = "another transaction opened the same incarnation"
        raise Conflict(msg)
    key: int = rows[0]["batch_key"]
    return key


async def _tell(session: Session, tenant_id: str, batch: Row, webhook: Row) -> None:
    message = await session.find("message_lock", batch["finish_message_id"], tenant_id)
    if message is None or message["expunged_at"] is not None:
        return
    await queueing.enqueue(session, [queueing.build_batch_delivery(webhook, message)])
