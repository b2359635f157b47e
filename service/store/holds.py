"""Held deliveries, and those behind open breakers, as upkeep sees them.

Belongs here: releasing them and ending those that waited for too long, a bounded number at a time. Does not belong here:
when that is done (``upkeep.release``).
"""

from __future__ import annotations

from collections.abc import Collection

from service.store.codes import DoneState
from service.store.database import Database, Row
from service.upkeep.release import Ended


class Holds:
    """``HoldStore`` on PostgreSQL. ``total`` is the default schedule's length in seconds."""

    def __init__(self, database: Database, total: float) -> None:
        self._database = database
        self._total = total

    async def release_free(self, limit: int) -> int:
        """Let go what is held though its reason is gone, at most ``limit`` of each webhook; return how many."""
        async with self._database.session() as session:
            released: int = await session.value("held_release", limit)
        return released

    async def list_held_for(self, reason: str) -> list[int]:
        """Keys of the webhooks with deliveries that are held for this reason."""
        async with self._database.session() as session:
            return [row["webhook_key"] for row in await session.fetch("held_webhooks", reason)]

    async def release_of(self, webhook_keys: Collection[int], reason: str) -> int:
        """Let go what these webhooks hold for this reason; return how many."""
        async with self._database.session() as session:
            released: int = await session.value("held_release_of", list(webhook_keys), reason)
        return released

    async def age_out(self, limit: int) -> list[Ended]:
        """End what was held for too long, at most ``limit`` of each webhook; return what ended."""
        async with self._database.session() as session:
            return [_read_ended(row) for row in await session.fetch("held_age_out", self._total, limit)]

    async def expire(self, limit: int) -> list[Ended]:
        """End what waits behind an open breaker for longer than its schedule; return what ended."""
        async with self._database.session() as session:
            return [_read_ended(row) for row in await session.fetch("breaker_expire", self._total, limit)]


def _read_ended(row: Row) -> Ended:
    return Ended(**{**row, "state": DoneState(row["state"]).word})
