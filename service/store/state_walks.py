"""Four walks over what is kept for ``RETENTION_STATE``: messages, batches with their members, other jobs, webhooks.

Belongs here: one page of each, and where the next begins. Does not belong here: how far a round goes (``state_pruning``)
and which rows may go, which the statements say (``sql/prune_*``).

A page is a transaction. It locks what it may forget and skips what somebody holds, then looks whether that is in use: so
it waits for nobody, and what waits for it finds no row, as if it had come later. The order is that of ingest, batches
before jobs. Positions are by age where a key grows with age, so that a pass ends at the first young row.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, Protocol

from service.store.database import Database, Row, Session
from service.store.statements import columns

PER_PAGE: Final = 500
BATCHES_AT_ONCE: Final = 50
TENANTS_AT_ONCE: Final = 100
MESSAGES_AT_ONCE: Final = 4 * PER_PAGE  # of a page of jobs or batches, most of which have one
PAGES_AT_ONCE: Final = 64  # of the jobs' table, at least
PAGES_A_ROUND: Final = 1_024  # at least
LAG: Final = 20  # the jobs' table is gone through once in a twentieth of the retention
ROUND: Final = timedelta(minutes=1)
GRACE: Final = timedelta(hours=1)  # from an idle mark to its effect: longer than any transaction
_FIRST: Final = (datetime.min.replace(tzinfo=UTC), "")


@dataclass(frozen=True, slots=True)
class Cut:
    """What is older may go: state, and messages, which are kept for the longer of the two retentions."""

    now: datetime
    state: datetime
    messages: datetime


class Taken(NamedTuple):
    """What a page came to: rows that were forgotten, by table, and whether another page follows in this pass."""

    pruned: Counter[str]
    more: bool = True


class Walk(Protocol):
    """Passes over a table, a page at a time."""

    async def take(self, cut: Cut) -> Taken:
        """Forget what is old on the next page. Raises StoreUnavailable or Conflict; then the page is taken again."""


class MessageWalk:
    """Messages of overtaken runs and earlier finishes, tests and operational news: oldest first, by tenant."""

    def __init__(self, database: Database, per_page: int = PER_PAGE) -> None:
        self._database = database
        self._per_page = per_page
        self._before: str = ""  # the tenant that was visited last
        self._tenants: list[str] = []  # due ones
        self._position = _FIRST

    async def take(self, cut: Cut) -> Taken:
        """Take a page of the present tenant; without one, look for tenants that are due."""
        async with self._database.transaction() as session:
            return await (self._prune(session, cut) if self._tenants else self._look(session, cut))

    async def _look(self, session: Session, cut: Cut) -> Taken:
        rows = await session.fetch("prune_messages_tenants", self._before, cut.messages, TENANTS_AT_ONCE)
        self._tenants = [row["tenant_id"] for row in rows if row["due"]][::-1]
        self._before = rows[-1]["tenant_id"] if rows else ""
        return Taken(Counter(), bool(rows))

    async def _prune(self, session: Session, cut: Cut) -> Taken:
        place = (self._tenants[-1], cut.messages, *self._position)
        page = await session.fetch("prune_messages_page", *place, self._per_page)
        spent = [row["message_id"] for row in page if row["spent"]]
        locked = await session.fetch("prune_messages_lock", spent) if spent else []
        pruned = await _count(session, "prune_messages", [row["message_id"] for row in locked]) if locked else Counter()
        if len(page) < self._per_page:
            self._tenants.pop()
            self._position = _FIRST
        else:
            self._position = (page[-1]["created_at"], page[-1]["message_id"])
        return Taken(pruned)


class BatchWalk:
    """Batches that have been quiet, oldest first, each with its members."""

    def __init__(self, database: Database, at_once: int = BATCHES_AT_ONCE, per_page: int = PER_PAGE) -> None:
        self._database = database
        self._at_once = at_once
        self._per_page = per_page
        self._after = 0

    async def take(self, cut: Cut) -> Taken:
        """Take a page of batches with their members; more of those than a page go in transactions of their own.

        Should these not come about, such a member is a job without a batch, to events and to ``JobWalk``.
        """
        pruned: Counter[str] = Counter()
        async with self._database.transaction() as session:
            page = await session.fetch("prune_batches_page", self._after, self._at_once, cut.state)
            quiet = [row["batch_key"] for row in page if row["quiet"]]
            keys = await self._prune(session, cut, quiet, pruned) if quiet else []
            gone = await self._prune_members(session, cut, keys, pruned) if keys else 0
        while gone == self._per_page:
            async with self._database.transaction() as session:
                gone = await self._prune_members(session, cut, keys, pruned)
        more = bool(page) and page[-1]["old"]
        self._after = page[-1]["batch_key"] if more else 0
        return Taken(pruned, more)

    async def _prune(self, session: Session, cut: Cut, quiet: list[int], pruned: Counter[str]) -> list[int]:
        locked = [row["batch_key"] for row in await session.fetch("prune_batches_lock", quiet, cut.state)]
        webhooks = await session.fetch("prune_webhooks_lock_of_batches", locked)
        messages = await session.fetch("prune_messages_lock_of_batches", locked, MESSAGES_AT_ONCE)
        held = [row["webhook_key"] for row in webhooks], [row["message_id"] for row in messages]
        row = await session.find("prune_batches", locked, *held, cut.state, cut.messages)
        assert row is not None
        pruned.update(batches=len(row["keys"]), webhooks=row["webhooks"], messages=row["messages"])
        return list(row["keys"])

    async def _prune_members(self, session: Session, cut: Cut, keys: list[int], pruned: Counter[str]) -> int:
        rows = await session.fetch("prune_jobs_lock_members", keys, cut.state, self._per_page)
        members = await _prune_jobs(session, cut, rows)
        pruned.update(members)
        return members["jobs"]


class JobWalk:
    """Jobs without a batch, and what is left of forgotten batches: the table from end to end, in the order of its pages.

    No key of a job grows with its age, and an index on its age would be written with every event. ``kept`` is the
    retention, of which one pass takes a fixed share.
    """

    def __init__(self, database: Database, kept: timedelta, per_page: int = PER_PAGE) -> None:
        self._database = database
        self._rounds = max(1, int(kept / LAG / ROUND))
        self._per_page = per_page
        self._position = (0, 0)
        self._left = 0  # pages of this round
        self._step = PAGES_AT_ONCE

    async def take(self, cut: Cut) -> Taken:
        """Take some pages of the table; ``more`` is false at the end of a round's share too."""
        async with self._database.transaction() as session:
            if self._left <= 0:
                await self._plan(session)
            end = (self._position[0] + self._step, 0)
            rows = await session.fetch("prune_jobs_lock", self._position, end, cut.state, self._per_page)
            pruned = await _prune_jobs(session, cut, rows)
        if len(rows) == self._per_page:  # the rest of these pages is next
            block, number = max(row["ctid"] for row in rows)
            self._position = (block, number + 1)
            return Taken(pruned)
        self._position = end
        self._left -= self._step
        return Taken(pruned, self._left > 0)

    async def _plan(self, session: Session) -> None:
        pages = await session.value("prune_jobs_pages")
        if self._position[0] >= pages:
            self._position = (0, 0)
        share = max(PAGES_A_ROUND, pages // self._rounds)
        self._step = max(PAGES_AT_ONCE, share // 100)
        self._left = min(share, max(1, pages - self._position[0]))


class WebhookWalk:
    """Retired webhooks, and hidden ones that nothing has used: oldest first."""

    def __init__(self, database: Database, per_page: int = PER_PAGE) -> None:
        self._database = database
        self._per_page = per_page
        self._after = 0

    async def take(self, cut: Cut) -> Taken:
        """Take a page: mark hidden ones that are idle, forget those that are marked for long enough, and retired ones."""
        marked = cut.now - GRACE
        async with self._database.transaction() as session:
            page = await session.fetch("prune_webhooks_page", self._after, self._per_page, cut.state, marked)
            due = await self._lock(session, [row["webhook_key"] for row in page if row["retired"] or row["idle"]])
            new = await self._lock(session, [row["webhook_key"] for row in page if row["unmarked"]])
            pruned = await self._forget(session, due, cut.state, marked) if due else Counter()
            if new:
                await session.execute("prune_webhooks_mark", new, cut.state, cut.now)
        more = bool(page) and page[-1]["old"]
        self._after = page[-1]["webhook_key"] if more else 0
        return Taken(pruned, more)

    async def _forget(self, session: Session, keys: list[int], *before: datetime) -> Counter[str]:
        return await _count(session, "prune_webhooks", keys, *before)

    async def _lock(self, session: Session, keys: list[int]) -> list[int]:
        return [row["webhook_key"] for row in await session.fetch("prune_webhooks_lock", keys)] if keys else []


async def _prune_jobs(session: Session, cut: Cut, jobs: Sequence[Row]) -> Counter[str]:
    """Forget locked jobs with their messages."""
    if not jobs:
        return Counter()
    keys = columns(((row["tenant_id"], row["job_id"]) for row in jobs), 2)
    messages = await session.fetch("prune_messages_lock_of_jobs", *keys, MESSAGES_AT_ONCE)
    return await _count(session, "prune_jobs", *keys, [row["message_id"] for row in messages], cut.messages)


async def _count(session: Session, name: str, *args: object) -> Counter[str]:
    row = await session.find(name, *args)
    assert row is not None
    return Counter(dict(row.items()))
