"""The reconcile loop: recounts batches that have changed, repairs what differs, counts the repairs (batch rule 7).

Belongs here: comparing kept counters with a recount. Does not belong here: the counters themselves
(``domain.batches``) and finishing a batch that turns out to be done (the settle loop does).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from service.domain.batches import Batch, Member, recount

AT_ONCE = 20


class ReconcileTransaction(Protocol):
    """One batch, locked."""

    batch: Batch | None
    now: datetime

    async def list_members(self) -> tuple[list[Member], int]:
        """Return all members, and how many distinct jobs are known to have been in the batch."""

    async def save(self, batch: Batch | None) -> None:
        """Note that the batch was looked at; write it when it was repaired."""


class ReconcileStore(Protocol):
    """Knows which batches have changed since they were last looked at."""

    async def list_changed(self, limit: int) -> Sequence[int]:
        """Return keys of batches that changed since their last recount and have been quiet for a while."""

    def lock_batch(self, batch_key: int) -> AbstractAsyncContextManager[ReconcileTransaction]:
        """Lock one batch for a recount."""


class Repairs(Protocol):
    """Counts repairs."""

    def batches_reconciled(self, count: int) -> None:
        """Count batches whose counters were wrong."""


class Reconcile:
    """One round of recounts."""

    def __init__(self, store: ReconcileStore, repairs: Repairs) -> None:
        self._store = store
        self._repairs = repairs

    async def run_once(self) -> None:
        """Recount up to twenty batches, each in its own transaction."""
        for batch_key in await self._store.list_changed(AT_ONCE):
            async with self._store.lock_batch(batch_key) as transaction:
                await self._reconcile(transaction)

    async def _reconcile(self, transaction: ReconcileTransaction) -> None:
        kept = transaction.batch
        if kept is None or kept.ended:
            await transaction.save(None)
            return
        members, entered = await transaction.list_members()
        counted = recount(kept, members, max(entered, kept.entered))
        right = replace(kept, times_stale=False, changed=counted.changed) == counted
        if not right and counted.all_done and counted.dirty and counted.settle_due_at is None:
            counted.settle_due_at = transaction.now
        await transaction.save(None if right and not kept.times_stale else counted)
        self._repairs.batches_reconciled(0 if right or kept.times_stale else 1)
