"""Where to read a partition from: what is stored against what the log holds.

Belongs here: a worker's holding of partitions, and the three cases of a stored offset: none yet, in the log, outside it.
Does not belong here: Kafka and the rows themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from service.ingest.poll import LogBounds, Partition, StoredOffset


class Offsets(Protocol):
    """Stored offsets; ``service.store.offsets.OffsetStore`` is one. Every method may raise StoreUnavailable."""

    async def claim(self, owner: str, partitions: Collection[Partition]) -> Mapping[Partition, StoredOffset]:
        """Write the fence; return how far each partition was ingested."""

    async def start(self, owner: str, bounds: Mapping[Partition, LogBounds]) -> None:
        """Remember the log as it was at the first read of partitions."""

    async def restart(self, owner: str, bounds: Mapping[Partition, LogBounds]) -> None:
        """Go on at the earliest record of partitions."""


class Missed(NamedTuple):
    """A stored offset that the log does not have. ``records`` are gone unread; None: nobody can know."""

    partition: Partition
    stored_offset: int
    bounds: LogBounds
    records: int | None


@dataclass(slots=True)
class Holding:
    """What a worker may read: the fence it wrote, and per partition how far it got and where catching up ends."""

    owner: str
    next_offsets: dict[Partition, int] = field(default_factory=dict)
    catch_up: dict[Partition, int] = field(default_factory=dict)


async def place(
    offsets: Offsets, holding: Holding, stored: Mapping[Partition, StoredOffset], bounds: Mapping[Partition, LogBounds]
) -> list[Missed]:
    """Fill a holding, having stored what a first read or a lost offset changes; return what was lost."""
    new = {partition: bounds[partition] for partition, (offset, _) in stored.items() if offset is None}
    missed = [found for partition in stored if (found := _find_missed(partition, stored[partition], bounds[partition]))]
    if new:
        await offsets.start(holding.owner, new)
    if missed:
        await offsets.restart(holding.owner, {lost.partition: lost.bounds for lost in missed})
    restarted = {lost.partition for lost in missed}
    for partition, (offset, catch_up_until) in stored.items():
        holding.next_offsets[partition] = (
            bounds[partition].first if offset is None or partition in restarted else offset
        )
        holding.catch_up[partition] = bounds[partition].end if partition in new else catch_up_until
    return missed


def _find_missed(partition: Partition, stored: StoredOffset, bounds: LogBounds) -> Missed | None:
    """Below the log: retention was faster than we. Above it: another log, and nobody knows what the old one had."""
    offset = stored.next_offset
    if offset is None or bounds.first <= offset <= bounds.end:
        return None
    return Missed(partition, offset, bounds, bounds.first - offset if offset < bounds.first else None)
