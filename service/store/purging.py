"""Erasing a tenant: every row of every table that is its own, in bounded batches, beside a running service.

Belongs here: the order of deletion and what makes it safe. Does not belong here: the command (``tools.tenants``).

The order: access and destinations first, so that nothing new goes out; then what refers to something before what is
referred to; the tenant's row last. Each batch is a transaction of its own that locks rows of one table in key order and
skips those that somebody holds, so it waits for nobody and nobody waits for it long. What was skipped (an attempt on the
wire, a job that ingest holds) or came meanwhile is met by the next sweep; sweeps go on until one leaves nothing, or there
have been enough. Webhooks go only after a while without any delivery: a worker that has just recorded an attempt still
notes how its webhook fares, and that row refers to the webhook's. What is cut short goes on when it is run again.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from json import JSONEncoder
from typing import Any, Final

import orjson

from service.ports import Conflict
from service.store.audit import Entry, write_entry
from service.store.database import Database, Session

PER_BATCH: Final = 500
LETTERS_AT_ONCE: Final = 20  # up to 1 MiB each
SWEEPS: Final = 60
SECONDS_BETWEEN: Final = 2.0  # sweeps; together longer than a lease
ACTOR: Final = "cli"
QUIET: Final = 2  # sweeps in a row that left no delivery, before webhooks go
_STATEMENTS: Final = (  # before batches, in this order
    "purge_keys",
    "purge_replays",
    "purge_deliveries",
    "purge_deliveries_done",
    "purge_messages",
    "purge_jobs",
)
_STATEMENTS_AFTER: Final = ("purge_answers", "purge_audit")

Wait = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Purged:
    """Rows that were deleted, and rows that are still there, each by table."""

    deleted: Mapping[str, int]
    left: Mapping[str, int]


class TenantPurge:
    """Erases one tenant. Every method may raise StoreUnavailable; what was committed stays deleted."""

    def __init__(self, database: Database, tenant_id: str, *, per_batch: int = PER_BATCH) -> None:
        self._database = database
        self._tenant_id = tenant_id
        self._per_batch = per_batch

    async def count(self) -> dict[str, int]:
        """Count the tenant's rows by table; tables without any are left out."""
        async with self._database.session() as session:
            row = await session.find("purge_count", self._tenant_id)
        assert row is not None
        letters = sum([len(page) async for page in self._find_letters()])
        return {name: count for name, count in (*row.items(), ("dead_letters", letters)) if count}

    async def run(self, wait: Wait = asyncio.sleep, sweeps: int = SWEEPS) -> Purged:
        """Sweep until nothing is left, at most so many times; ``wait`` is called between two sweeps."""
        deleted: Counter[str] = Counter()
        left: Mapping[str, int] = {}
        quiet = 0
        for number in range(sweeps):
            if number:
                await wait(SECONDS_BETWEEN)
            deleted += await self._sweep(webhooks=quiet >= QUIET)
            left = await self.count()
            if not left:
                break
            quiet = 0 if "deliveries" in left else quiet + 1
        return Purged(deleted, left)

    async def write_audit(self, purged: Purged) -> str:
        """Note the purge in the audit log, and return what it calls the tenant: a hash, since nothing of it may stay."""
        target = f"tenant sha256:{sha256(self._tenant_id.encode()).hexdigest()}"
        after = {"deleted": dict(purged.deleted), "complete": not purged.left}
        async with self._database.transaction() as session:
            now = await session.value("transaction_now")
            await write_entry(session, Entry(now, None, ACTOR, "tenant_purge", target, None, after))
        return target

    async def _sweep(self, *, webhooks: bool) -> Counter[str]:
        await self._retire_webhooks()
        deleted: Counter[str] = Counter()
        for name in _STATEMENTS:
            deleted += await self._repeat(partial(self._delete, name))
        deleted += await self._repeat(self._delete_batches)
        for name in (*(("purge_webhooks",) if webhooks else ()), *_STATEMENTS_AFTER):
            deleted += await self._repeat(partial(self._delete, name))
        deleted += await self._delete_letters()
        for name in ("purge_pauses", "purge_tenant"):
            async with self._database.transaction() as session:
                deleted += _counted(await session.find(name, self._tenant_id))
        return deleted

    async def _retire_webhooks(self) -> None:
        """Routing and workers learn of it as of any deletion: within two seconds nothing is sent."""
        retired = self._per_batch
        while retired == self._per_batch:
            async with self._database.transaction() as session:
                retired = await session.value("purge_webhooks_retire", self._tenant_id, self._per_batch)
                if retired:
                    await session.execute("webhook_bump_routing", self._tenant_id)
                    await session.execute("webhooks_notify")

    async def _repeat(self, step: Callable[[Session], Awaitable[Any]]) -> Counter[str]:
        """Run a step, a transaction each, until it finds less than a full batch; a deadlock leaves it to the next sweep."""
        deleted: Counter[str] = Counter()
        first = self._per_batch
        while first == self._per_batch:
            try:
                async with self._database.transaction() as session:
                    row = await step(session)
            except Conflict:
                break
            first = row[0]
            deleted += _counted(row)
        return deleted

    async def _delete(self, name: str, session: Session) -> Any:
        return await session.find(name, self._tenant_id, self._per_batch)

    async def _delete_batches(self, session: Session) -> Any:
        """Lock, then look: whatever came into a batch before the lock is seen by the second statement."""
        rows = await session.fetch("purge_batches_lock", self._tenant_id, self._per_batch)
        return await session.find("purge_batches", [row["batch_key"] for row in rows])

    async def _delete_letters(self) -> Counter[str]:
        deleted: Counter[str] = Counter()
        async for ids in self._find_letters():
            async with self._database.session() as session:
                deleted += _counted(await session.find("purge_dead_letters", ids))
        return deleted

    async def _find_letters(self) -> AsyncIterator[list[int]]:
        """Yield ids of the tenant's dead letters, a page each; the database leaves out what cannot be one."""
        forms, prefix = _list_forms(self._tenant_id), _key_prefix(self._tenant_id)
        last = 0
        while True:
            async with self._database.session() as session:
                rows = await session.fetch("purge_dead_letters_page", last, LETTERS_AT_ONCE, forms, prefix)
            if not rows:
                return
            if found := [row["dead_letter_id"] for row in rows if concerns(row["key"], row["value"], self._tenant_id)]:
                yield found
            last = rows[-1]["dead_letter_id"]


def _counted(row: Any) -> Counter[str]:
    return Counter({name: count for name, count in row.items() if count})


def concerns(key: bytes | None, value: bytes | None, tenant_id: str) -> bool:
    """Tell whether a dead letter is this tenant's: by what its JSON says, else by traces in its bytes, else by its key."""
    named = _read_tenants(value)
    if named:
        return tenant_id in named
    if any(
        re.search(rb'"tenant_id"\s*:\s*"' + re.escape(form) + rb'"', value or b"") for form in _list_forms(tenant_id)
    ):
        return True
    return key is not None and key.startswith(_key_prefix(tenant_id))


def _list_forms(text: str) -> list[bytes]:
    """How a text may stand in JSON, without its quotes."""
    escaped = JSONEncoder().encode(text)[1:-1]
    plain = JSONEncoder(ensure_ascii=False).encode(text)[1:-1]
    return sorted({form.encode() for one in (escaped, plain) for form in (one, one.replace("/", "\\/"))})


def _key_prefix(tenant_id: str) -> bytes:
    return tenant_id.encode() + b"/"


def _read_tenants(value: bytes | None) -> set[str]:
    """The tenants that a record names: its own field, or that of a CloudEvent's data."""
    try:
        document = orjson.loads(value or b"")
    except orjson.JSONDecodeError:
        return set()
    levels = [document, document.get("data")] if isinstance(document, dict) else []
    named = [level.get("tenant_id") for level in levels if isinstance(level, dict)]
    return {tenant_id for tenant_id in named if isinstance(tenant_id, str)}
