"""The settle loop: batches whose settle window is over finish (batch rule 8).

Belongs here: which ones, and how often one looks. Does not belong here: what finishing means (``ingest.applying``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

AT_ONCE = 100


class DueBatches(Protocol):
    """Knows whose window is over."""

    async def list_due(self, limit: int) -> Sequence[int]:
        """Return keys of batches whose due time has passed, oldest first."""


class Finisher(Protocol):
    """Finishes batches."""

    async def settle(self, batch_keys: Sequence[int]) -> int:
        """Finish those of these batches whose settle window is over; return how many did."""


class Settle:
    """One look at the due batches."""

    def __init__(self, due: DueBatches, finisher: Finisher) -> None:
        self._due = due
        self._finisher = finisher

    async def run_once(self) -> None:
        """Finish what is due now, a hundred batches a transaction."""
        while keys := await self._due.list_due(AT_ONCE):
            finished = await self._finisher.settle(keys)
            if finished == 0 or len(keys) < AT_ONCE:
                return
