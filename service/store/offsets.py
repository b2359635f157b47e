"""How far each Kafka partition was ingested, and who may say so.

Belongs here: the rows of ``kafka_offsets``. Does not belong here: Kafka (``service.ingest``) and what was ingested.

The fence: whoever is assigned a partition writes its name into the row first, and that waits for a transaction of the
owner before. From then on nobody else's offsets, hence nobody else's polls, are written (``opening``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from service.ingest.poll import LogBounds, Partition, StoredOffset
from service.store.database import Database


class OffsetStore:
    """What the Kafka worker asks of the store. Every method may raise StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def claim(self, owner: str, partitions: Collection[Partition]) -> dict[Partition, StoredOffset]:
        """Write the fence into every partition's row and return how far it was ingested, None for a new one."""
        ordered = sorted(partitions)
        async with self._database.transaction() as session:
            rows = await session.fetch("offsets_claim", owner, _topics(ordered), [p.number for p in ordered])
        return {
            Partition(row["topic"], row["partition"]): StoredOffset(row["next_offset"], row["catch_up_until"])
            for row in rows
        }

    async def start(self, owner: str, bounds: Mapping[Partition, LogBounds]) -> None:
        """Remember where the first read of partitions starts, and the end offset seen then."""
        await self._write("offsets_start", owner, bounds)

    async def restart(self, owner: str, bounds: Mapping[Partition, LogBounds]) -> None:
        """Go on at the earliest record of partitions whose stored offset the log no longer has."""
        await self._write("offsets_restart", owner, bounds)

    async def _write(self, name: str, owner: str, bounds: Mapping[Partition, LogBounds]) -> None:
        numbers = [partition.number for partition in bounds]
        firsts, ends = [b.first for b in bounds.values()], [b.end for b in bounds.values()]
        async with self._database.transaction() as session:
            await session.execute(name, owner, _topics(bounds), numbers, firsts, ends)


def _topics(partitions: Collection[Partition]) -> list[str]:
    return [partition.topic for partition in partitions]
