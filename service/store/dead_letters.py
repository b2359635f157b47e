"""Records that could not become events, kept until somebody decides about them.

Belongs here: the rows of ``dead_letters``. Does not belong here: why a record is one (``service.ingest``) and what an
operator does with them (``service.tools.dlq``).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from service.ingest.poison import DeadLetter
from service.ingest.poll import NOWHERE, Headers, Partition, Record
from service.store.database import Database, Session
from service.store.statements import columns

MAX_VALUE_BYTES = 1 << 20
MAX_KEY_BYTES = 1 << 16
MAX_HEADERS_BYTES = 1 << 18
LAST_ID = 2**63 - 1


@dataclass(frozen=True, slots=True)
class DeadLetterSummary:
    """One line of a list."""

    dead_letter_id: int
    received_at: datetime
    partition: Partition
    offset: int
    reason: str
    detail: str
    size: int
    replayed_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoredDeadLetter:
    """A dead letter with what came: ``value`` is cut at 1 MiB, ``size`` and ``sha256`` are of the whole."""

    dead_letter_id: int
    partition: Partition
    offset: int
    reason: str
    detail: str
    key: bytes | None
    headers: Headers
    value: bytes | None
    size: int
    sha256: bytes

    @property
    def whole(self) -> bool:
        """False when the value was cut, so that it cannot be replayed."""
        return self.value is not None and len(self.value) == self.size


async def insert_dead_letters(session: Session, records: Sequence[Record]) -> None:
    """Keep records whose content is a DeadLetter, inside the caller's transaction; those of a stored place stay as is.

    Records that came over HTTP are left out: whoever sent them was told.
    """
    rows = [_row(record, record.content) for record in records if isinstance(record.content, DeadLetter)]
    rows = [row for row in rows if row[0] != NOWHERE.topic]
    if rows:
        await session.execute("dead_letters_insert", *columns(rows, 10))


class DeadLetters:
    """What the tool and the mirror ask of the store. Every method may raise StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def list_newest(
        self, limit: int, *, before: int = LAST_ID, reason: str | None = None
    ) -> list[DeadLetterSummary]:
        """A page, newest first."""
        async with self._database.session() as session:
            rows = await session.fetch("dead_letters_list", before, reason, limit)
        return [_summary(row) for row in rows]

    async def find(self, dead_letter_id: int) -> StoredDeadLetter | None:
        """One dead letter with its bytes."""
        async with self._database.session() as session:
            row = await session.find("dead_letters_find", dead_letter_id)
        return None if row is None else _stored(row)

    async def list_unreplayed(self, reason: str, limit: int) -> list[int]:
        """Ids of those that were never replayed, oldest first."""
        async with self._database.session() as session:
            return [row["dead_letter_id"] for row in await session.fetch("dead_letters_unreplayed", reason, limit)]

    async def drop(self, dead_letter_ids: Collection[int]) -> int:
        """Delete dead letters; return how many there were."""
        async with self._database.session() as session:
            return await session.write("dead_letters_drop", list(dead_letter_ids))

    async def mark_replayed(self, dead_letter_id: int) -> None:
        """Remember that it went through the pipeline again."""
        async with self._database.session() as session:
            await session.execute("dead_letters_mark_replayed", dead_letter_id)

    async def list_unmirrored(self, owner: str, limit: int) -> list[StoredDeadLetter]:
        """Those not yet copied to the topic, oldest first, of the partitions that ``owner`` owns."""
        async with self._database.session() as session:
            return [_stored(row) for row in await session.fetch("dead_letters_unmirrored", owner, limit)]

    async def mark_mirrored(self, dead_letter_ids: Collection[int]) -> None:
        """Remember that they were copied."""
        async with self._database.session() as session:
            await session.execute("dead_letters_mark_mirrored", list(dead_letter_ids))


def _row(record: Record, letter: DeadLetter) -> tuple[object, ...]:
    value = record.value
    return (
        record.partition.topic,
        record.partition.number,
        record.offset,
        letter.reason.value,
        letter.detail,
        record.key and record.key[:MAX_KEY_BYTES],
        _encode_headers(record.headers),
        value and value[:MAX_VALUE_BYTES],
        len(value or b""),
        hashlib.sha256(value or b"").digest(),
    )


def _encode_headers(headers: Headers) -> bytes:
    kept, size = [], 0
    for name, value in headers:
        size += len(name) + len(value or b"")
        if size > MAX_HEADERS_BYTES:
            break
        kept.append((name, None if value is None else base64.b64encode(value).decode()))
    return orjson.dumps(kept)


def _decode_headers(encoded: bytes) -> Headers:
    return tuple((name, None if value is None else base64.b64decode(value)) for name, value in orjson.loads(encoded))


def _summary(row: Any) -> DeadLetterSummary:
    place = Partition(row["topic"], row["partition"]), row["kafka_offset"]
    return DeadLetterSummary(
        row["dead_letter_id"],
        row["received_at"],
        *place,
        row["reason"],
        row["detail"],
        row["size"],
        row["replayed_at"],
    )


def _stored(row: Any) -> StoredDeadLetter:
    return StoredDeadLetter(
        dead_letter_id=row["dead_letter_id"],
        partition=Partition(row["topic"], row["partition"]),
        offset=row["kafka_offset"],
        reason=row["reason"],
        detail=row["detail"],
        key=row["key"],
        headers=_decode_headers(row["headers"]),
        value=row["value"],
        size=row["size"],
        sha256=row["sha256"],
    )
