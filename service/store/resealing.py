"""Sealing stored columns anew with the first encryption key, beside a running service.

Belongs here: every sealed column, and the walk through it by key. Does not belong here: the envelope (``sealing``), the
keys (settings), and the command (``tools.secrets``).

A value is replaced only where the bytes that were read still stand: whoever changed it meanwhile wrote it under the keys
of its own process, and is looked at once more. Nothing of this changes what a webhook is, so revisions stay. A walk that
is cut short leaves no gap: the next one passes by what is under the first key already.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from service.ports import Conflict
from service.sealing import Sealer, Undecryptable
from service.store.database import Database
from service.store.idempotency import name_purpose
from service.store.statements import columns
from service.store.webhook_seals import seal_headers, seal_secrets, seal_url, unseal_headers, unseal_secrets, unseal_url

PER_BATCH: Final = 200
LOOKS: Final = 5  # at a batch that others keep changing

Resealed = tuple[int | str | bytes, bytes, bytes]  # key of the row, sealed, sealed anew
Reseal = Callable[[Sealer, str, str, bytes], bytes]


@dataclass(frozen=True, slots=True)
class Column:
    """One sealed column. ``sql/reseal_<statement>_page.sql`` reads it, ``sql/reseal_<statement>.sql`` writes it."""

    name: str
    statement: str
    start: int | str | bytes  # before every key
    reseal: Reseal  # (sealer, tenant id, name of the row, sealed) -> sealed anew


def _reseal_url(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes) -> bytes:
    return seal_url(sealer, tenant_id, webhook_id, unseal_url(sealer, tenant_id, webhook_id, sealed))


def _reseal_headers(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes) -> bytes:
    return seal_headers(sealer, tenant_id, webhook_id, unseal_headers(sealer, tenant_id, webhook_id, sealed))


def _reseal_secrets(sealer: Sealer, tenant_id: str, webhook_id: str, sealed: bytes) -> bytes:
    return seal_secrets(sealer, tenant_id, webhook_id, unseal_secrets(sealer, tenant_id, webhook_id, sealed))


def _reseal_answer(sealer: Sealer, tenant_id: str, scope_hash: str, sealed: bytes) -> bytes:
    purpose = name_purpose(scope_hash)
    clear = sealer.unseal(sealed, tenant_id=tenant_id, purpose=purpose)
    return sealer.seal(clear, tenant_id=tenant_id, purpose=purpose)


COLUMNS: Final = (
    Column("webhooks.url", "webhook_urls", 0, _reseal_url),
    Column("webhooks.custom_headers", "webhook_headers", 0, _reseal_headers),
    Column("webhooks.secrets", "webhook_secrets", 0, _reseal_secrets),
    Column("tenants.signing_secrets", "tenant_secrets", "", _reseal_secrets),
    Column("idempotency.answer", "answers", b"", _reseal_answer),
)


@dataclass(frozen=True, slots=True)
class Broken:
    """A value that no key opens."""

    column: str
    tenant_id: str
    name: str
    reason: str


@dataclass(slots=True)
class Tally:
    """What became of one column. ``left`` were changed by others at every look: another run is needed."""

    column: str
    seen: int = 0
    resealed: int = 0
    left: int = 0
    broken: list[Broken] = field(default_factory=list)


class Resealing:
    """Walks through all sealed columns. May raise StoreUnavailable; what was committed stays."""

    def __init__(self, database: Database, sealer: Sealer, *, per_batch: int = PER_BATCH) -> None:
        self._database = database
        self._sealer = sealer
        self._per_batch = per_batch

    async def run(self) -> AsyncIterator[Tally]:
        """Seal column after column anew; yields each one's tally when it is through."""
        for column in COLUMNS:
            yield await self._walk(column)

    async def _walk(self, column: Column) -> Tally:
        tally, after, looks = Tally(column.name), column.start, 0
        while rows := await self._read(column, after):
            resealed, broken = self._open(column, rows)
            done = await self._write(column, resealed)
            tally.resealed += done
            looks += 1
            if done < len(resealed) and looks < LOOKS:
                continue  # somebody changed one meanwhile: the same batch once more
            tally.seen += len(rows)
            tally.left += len(resealed) - done
            tally.broken += broken
            after, looks = rows[-1]["key"], 0
        return tally

    async def _read(self, column: Column, after: int | str | bytes) -> list[Any]:
        async with self._database.session() as session:
            return await session.fetch(f"reseal_{column.statement}_page", after, self._per_batch)

    def _open(self, column: Column, rows: Sequence[Any]) -> tuple[list[Resealed], list[Broken]]:
        """Seal anew what another key sealed; tell what does not open."""
        resealed: list[Resealed] = []
        broken: list[Broken] = []
        for row in rows:
            sealed, tenant_id, name = row["sealed"], row["tenant_id"], row["name"]
            try:
                if self._sealer.needs_reseal(sealed):
                    resealed.append((row["key"], sealed, column.reseal(self._sealer, tenant_id, name, sealed)))
            except Undecryptable as error:
                broken.append(Broken(column.name, tenant_id, name, str(error)))
        return resealed, broken

    async def _write(self, column: Column, resealed: Sequence[Resealed]) -> int:
        """Replace what still stands; return how many. A deadlock's victim has replaced none."""
        if not resealed:
            return 0
        try:
            async with self._database.transaction() as session:
                return len(await session.fetch(f"reseal_{column.statement}", *columns(resealed, 3)))
        except Conflict:
            return 0
