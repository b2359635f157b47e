"""Batches as the API reads and locks them.

Belongs here: finding an incarnation by name, opening one for an early registration, lists. Does not belong here: what
events do to a batch (``ingesting``).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from service.domain.batches import Batch, Settling, find_due
from service.domain.events import BatchRef
from service.domain.incarnations import find_incarnation, open_incarnation
from service.domain.jobs import Job
from service.ports import Conflict
from service.store.batch_rows import INSERT_COLUMNS, UPDATE_COLUMNS, changed_batch_row, decode_batch, new_batch_row
from service.store.database import Row, Session
from service.store.job_rows import decode_job
from service.store.statements import columns


@dataclass(frozen=True, slots=True)
class SeenBatch:
    """A batch with what the API shows beside it."""

    batch: Batch
    delivered_generation: int | None
    oldest_unfinished_at: datetime | None = None


async def _lock_known(session: Session, tenant_id: str, ref: BatchRef) -> list[Batch]:
    rows = await session.fetch("batches_lock", [tenant_id], [ref.name], [ref.id], [None], [])
    return sorted((decode_batch(row) for row in rows), key=lambda batch: batch.seq)


async def lock_batch(session: Session, tenant_id: str, name: str) -> Batch | None:
    """Return the newest incarnation of a name, ended or not, locked until the transaction ends."""
    known = await _lock_known(session, tenant_id, BatchRef(name))
    return known[-1] if known else None


async def lock_or_open_batch(session: Session, tenant_id: str, ref: BatchRef) -> Batch:
    """Return the incarnation that a ``PUT`` means, locked; it is opened where there is none.

    Raises Conflict when another transaction opened it at the same time.
    """
    known = await _lock_known(session, tenant_id, ref)
    found = find_incarnation(known, ref)
    if found is None:
        return await _open(session, open_incarnation(known, tenant_id, ref, key=-1))
    if found.changed:
        await session.execute("batches_update", *columns([changed_batch_row(found)], UPDATE_COLUMNS))
    return found


async def _open(session: Session, batch: Batch) -> Batch:
    rows = await session.fetch("batches_insert", *columns([new_batch_row(batch)], INSERT_COLUMNS))
    if not rows:
        msg = "another transaction opened the same incarnation"
        raise Conflict(msg)
    batch.key = rows[0]["batch_key"]
    return batch


async def set_settle_seconds(session: Session, batch: Batch, seconds: float | None, settling: Settling) -> None:
    """Give the batch, which is locked, its registration's settle window, or take it away."""
    whole = None if seconds is None else int(seconds)
    due = find_due(batch, whole, await session.value("transaction_now"), settling)
    await session.execute("batch_set_settle", batch.key, whole, due)


async def delivered_generation(session: Session, batch_key: int) -> int | None:
    """Return the newest finish that a registration of this batch has delivered."""
    generation: int | None = await session.value("batch_delivered_generation", batch_key)
    return generation


def _seen(row: Row) -> SeenBatch:
    return SeenBatch(decode_batch(row), row["delivered_generation"])


async def find_batch(session: Session, tenant_id: str, name: str) -> SeenBatch | None:
    """Return the newest incarnation of a name, with its oldest unfinished member's time."""
    row = await session.find("batch_find", tenant_id, name)
    if row is None:
        return None
    oldest = await session.value("batch_oldest_unfinished", row["batch_key"])
    return SeenBatch(decode_batch(row), row["delivered_generation"], oldest)


async def find_batch_keys(session: Session, tenant_id: str, name: str) -> list[int]:
    """Return the row keys of the newest incarnations of a name, at most a hundred."""
    return [row["batch_key"] for row in await session.fetch("batch_keys", tenant_id, name)]


async def list_batches(session: Session, tenant_id: str, before: int, limit: int) -> list[SeenBatch]:
    """Return incarnations, newest first."""
    return [_seen(row) for row in await session.fetch("batch_list", tenant_id, before, limit)]


async def lock_batch_by_key(session: Session, batch_key: int) -> None:
    """Lock a batch whose webhook is to be locked next."""
    await session.execute("batch_lock_by_key", batch_key)


async def list_jobs(session: Session, batch_key: int, before: int, limit: int) -> list[tuple[int, Job]]:
    """Return members of a batch, newest first, each with its place in the order in which jobs were first seen."""
    rows = await session.fetch("batch_jobs", batch_key, before, limit)
    return [(row["seen_seq"], decode_job(row)) for row in rows]


async def find_job(session: Session, tenant_id: str, job_id: str) -> Job | None:
    """Return a job's current run."""
    row = await session.find("job_find", tenant_id, job_id)
    return decode_job(row) if row else None


async def find_batch_by_key(session: Session, batch_key: int) -> Batch | None:
    """Return one incarnation."""
    row = await session.find("batch_by_key", batch_key)
    return decode_batch(row) if row else None
