"""Which incarnation of a batch name a reference means, and when a new one opens (batch rule 9).

Belongs here: names and ids of batches. Does not belong here: what an incarnation counts (``batches``).
"""

from __future__ import annotations

from collections.abc import Sequence

from service.domain.batches import Batch
from service.domain.events import BatchRef
from service.domain.identity import incarnation_id
from service.domain.jobs import Job


def find_incarnation(known: Sequence[Batch], ref: BatchRef) -> Batch | None:
    """Return the incarnation that ``ref`` means among those of its name, oldest first; None: it has to be opened.

    With a producer's id: the one that has it, else the newest while it is live and has no producer's id yet (which
    then adopts this one). Without: the newest while it is live.
    """
    newest = known[-1] if known else None
    if ref.id is not None:
        for batch in known:
            if batch.incarnation_id == ref.id:
                return batch
        if newest is None or newest.ended or newest.adopted:
            return None
        _adopt(newest, ref.id)
        return newest
    return None if newest is None or newest.ended else newest


def find_for_job(
    known: Sequence[Batch], ref: BatchRef, job: Job, current: Batch | None, generation: int
) -> Batch | None:
    """Like ``find_incarnation``, for an event of ``job``, which is in ``current`` and of the given generation.

    Without ids, a job of an ended incarnation joins the next one only with a higher generation.
    """
    left_behind = current is not None and current.ended and current.name == ref.name
    if ref.id is None and left_behind and generation <= job.generation:
        return current
    return find_incarnation(known, ref)


def goes_on(known: Sequence[Batch], ref: BatchRef, current: Batch) -> bool:
    """Whether a producer's id takes a job out of ``current``, which has ended, into one of the name that has not."""
    if ref.id is None or not current.ended or current.name != ref.name:
        return False
    return not any(batch.ended and batch.incarnation_id == ref.id for batch in known)


def open_incarnation(known: Sequence[Batch], tenant_id: str, ref: BatchRef, key: int) -> Batch:
    """Build the next incarnation of a name; its id is the producer's, else made from the deletion before it."""
    newest = known[-1] if known else None
    own_id = incarnation_id(tenant_id, ref.name, (newest.ended_by or "") if newest else "")
    return Batch(
        key=key,
        tenant_id=tenant_id,
        name=ref.name,
        seq=newest.seq + 1 if newest else 1,
        incarnation_id=ref.id or own_id,
        adopted=ref.id is not None,
        changed=True,
    )


def _adopt(batch: Batch, producer_id: str) -> None:
    batch.incarnation_id = producer_id
    batch.adopted = True
    batch.changed = True
