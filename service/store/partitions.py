"""Time partitions of message bodies, finished deliveries and attempts: made ahead, dropped when their time is over.

Belongs here: the DDL, with lock timeouts. Does not belong here: when it is done (``upkeep.partitions``) and how long
things are kept (settings).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

from service.store.database import Database, Session

PERIOD: Final = timedelta(weeks=1)
AHEAD: Final = 3
BEGUN_BEFORE: Final = timedelta(hours=1)  # not above the shortest retention: what is made would be dropped at once
PARENTS: Final = ("message_bodies", "deliveries_done", "attempts")
LOCK_TIMEOUT: Final = "2s"
PER_MOVE: Final = 500
MAKING_LOCK: Final = (0x7765_6268, 3)  # "webh"; 1 is the leader, 2 a live deliver process
_FIRST: Final = datetime(2024, 1, 1, tzinfo=UTC)  # a Monday


def list_periods(now: datetime, ahead: int = AHEAD) -> Iterator[tuple[datetime, datetime]]:
    """The period of ``now`` and those ahead; first the one before while rows may have been begun in it."""
    current = _FIRST + (now - _FIRST) // PERIOD * PERIOD
    for number in range(-1 if now - current < BEGUN_BEFORE else 0, ahead + 1):
        yield current + number * PERIOD, current + (number + 1) * PERIOD


class Partitions:
    """Makes and drops partitions. Every method may raise StoreUnavailable, or Conflict when a lock was not to be had."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def make_ahead(self) -> int:
        """Make what is missing of the current period and the three after it; return how many were made.

        One at a time: leader, ``migrate`` and embedded start may do it at the same moment, and each sees what the one
        before has made.
        """
        made = 0
        async with self._changing() as session:
            await session.execute("partitions_lock", *MAKING_LOCK)
            now: datetime = await session.value("transaction_now")
            for parent in PARENTS:
                known = {row["starts_at"] for row in await session.fetch("partitions_list", parent)}
                for starts_at, ends_at in list_periods(now):
                    if starts_at not in known:
                        await _make(session, parent, starts_at, ends_at)
                        made += 1
        return made

    async def count_ahead(self) -> int:
        """Periods that are ready beyond the current one, of the table that has fewest."""
        async with self._database.session() as session:
            ahead: int = await session.value("partitions_ahead")
        return ahead

    async def drop_expired(self, kept: Mapping[str, timedelta]) -> int:
        """Drop partitions whose rows are all older than ``kept`` says for their table; return how many were dropped.

        Bodies that are still needed move to the newest partition first.
        """
        dropped = 0
        for parent, age in kept.items():
            async with self._database.session() as session:
                expired = await session.fetch("partitions_expired", parent, age.total_seconds())
            for row in expired:
                if parent == "message_bodies":
                    await self._move_bodies(row["starts_at"], row["ends_at"])
                await self._drop(parent, row["name"], row["starts_at"], row["ends_at"])
                dropped += 1
        return dropped

    async def _move_bodies(self, starts_at: datetime, ends_at: datetime) -> None:
        moved = PER_MOVE
        while moved == PER_MOVE:
            async with self._database.transaction() as session:
                moved = await move_bodies(session, starts_at, ends_at, PER_MOVE)

    async def _drop(self, parent: str, name: str, starts_at: datetime, ends_at: datetime) -> None:
        async with self._changing() as session:
            await session.connection.execute(f"LOCK TABLE {parent} IN ACCESS EXCLUSIVE MODE")
            if parent == "message_bodies":  # needed since the move: nobody can come between now
                await move_bodies(session, starts_at, ends_at)
            await session.connection.execute(f"DROP TABLE IF EXISTS {name}")
            await session.execute("partitions_forget", name)

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[Session]:
        async with self._database.transaction() as session:
            await session.connection.execute(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'")
            yield session


async def move_bodies(session: Session, starts_at: datetime, ends_at: datetime, limit: int | None = None) -> int:
    """Move bodies of a period that are still needed to the newest partition; return how many.

    In two statements, so that the second sees what was queued while the first waited for a message's lock.
    """
    needed = [row["message_id"] for row in await session.fetch("bodies_needed", starts_at, ends_at, limit)]
    await session.execute("bodies_move", needed, starts_at, ends_at)
    return len(needed)


async def _make(session: Session, parent: str, starts_at: datetime, ends_at: datetime) -> None:
    name = f"{parent}_{starts_at:%Y%m%d}"
    bounds = f"FROM ('{starts_at.isoformat()}') TO ('{ends_at.isoformat()}')"
    await session.connection.execute(f"CREATE TABLE IF NOT EXISTS {name} PARTITION OF {parent} FOR VALUES {bounds}")
    await session.execute("partitions_note", parent, name, starts_at, ends_at)
