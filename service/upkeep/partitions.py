"""Partitions: made ahead of time, dropped when their time is over.

Belongs here: how long what is kept. Does not belong here: the DDL (``store.partitions``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from service.ports import Tell


class PartitionStore(Protocol):
    """Time partitions. Every method may raise StoreUnavailable, or Conflict when a lock was not to be had."""

    async def make_ahead(self) -> int:
        """Make what is missing of the current period and three more; return how many were made."""

    async def drop_expired(self, kept: Mapping[str, timedelta]) -> int:
        """Drop what is older than given per table, after moving what is still needed; return how many."""


@dataclass(frozen=True, slots=True)
class Keeping:
    """How long history is kept."""

    attempts: timedelta
    messages: timedelta

    @property
    def by_table(self) -> dict[str, timedelta]:
        """The same per partitioned table."""
        return {"attempts": self.attempts, "deliveries_done": self.messages, "message_bodies": self.messages}


class PartitionUpkeep:
    """One round: make, then drop."""

    def __init__(self, store: PartitionStore, keeping: Keeping, tell: Tell) -> None:
        self._store = store
        self._keeping = keeping
        self._tell = tell

    async def run_once(self) -> None:
        """Make what is missing and drop what is over; every hour or so."""
        made = await self._store.make_ahead()
        if made:
            self._tell("partitions_made", count=made)
        dropped = await self._store.drop_expired(self._keeping.by_table)
        if dropped:
            self._tell("partitions_dropped", count=dropped)
