"""What the loops that look after batches ask of the store: due settle windows, recounts.

Implements ``upkeep.settling.DueBatches`` and ``upkeep.reconciling.ReconcileStore``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from service.domain.batches import Batch, Member
from service.domain.jobs import Phase
from service.store.batch_rows import UPDATE_COLUMNS, changed_batch_row, decode_batch
from service.store.database import Database, Session
from service.store.statements import columns


@dataclass(slots=True)
class LockedBatch:
    """Implements ``upkeep.reconciling.ReconcileTransaction``."""

    session: Session
    batch_key: int
    batch: Batch | None
    now: datetime

    async def list_members(self) -> tuple[list[Member], int]:
        """Return all members, and how many distinct jobs are known to have been in the batch."""
        rows = await self.session.fetch("jobs_recount", self.batch_key)
        entered = await self.session.value("batches_count_entered", self.batch_key)
        return [_member(row) for row in rows], entered

    async def save(self, batch: Batch | None) -> None:
        """Note that the batch was looked at; write it when it was repaired."""
        if batch is not None:
            await self.session.execute("batches_update", *columns([changed_batch_row(batch)], UPDATE_COLUMNS))
        await self.session.execute("batches_reconciled", self.batch_key)


class BatchUpkeep:
    """Due batches and changed batches. Every method may raise StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_due(self, limit: int) -> Sequence[int]:
        """Return keys of batches whose due time has passed, oldest first."""
        return await self._keys("batches_due", limit)

    async def list_changed(self, limit: int) -> Sequence[int]:
        """Return keys of batches that changed since their last recount and have been quiet for a while."""
        return await self._keys("batches_to_reconcile", limit)

    @asynccontextmanager
    async def lock_batch(self, batch_key: int) -> AsyncIterator[LockedBatch]:
        """Lock one batch for a recount."""
        async with self._database.transaction() as session:
            now = await session.value("transaction_now")
            row = await session.find("batches_lock_keys", [batch_key])
            yield LockedBatch(session, batch_key, decode_batch(row) if row else None, now)

    async def _keys(self, name: str, limit: int) -> list[int]:
        async with self._database.session() as session:
            return [row["batch_key"] for row in await session.fetch(name, limit)]


def _member(row: Any) -> Member:
    return Member(
        row["job_id"],
        row["generation"],
        Phase(row["phase"]),
        row["dirty"],
        row["created_at"],
        row["started_at"],
        row["completed_at"],
    )
