"""The gauges of the queue, which the leader alone exports: one look every few seconds, never at a scrape.

Belongs here: when to look. Does not belong here: the statements (``store.gauges``) and the exposition (``telemetry``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Queue(Protocol):
    """Looks at the queue. May raise StoreUnavailable."""

    async def look(self) -> dict[str, Any]:
        """Return the values of the queue's gauges by name."""


class Ahead(Protocol):
    """Knows the partitions. May raise StoreUnavailable."""

    async def count_ahead(self) -> int:
        """Return for how many whole periods ahead partitions exist."""


class QueueGauging:
    """One look at the queue, published."""

    def __init__(self, queue: Queue, partitions: Ahead, publish: Callable[[Mapping[str, Any] | None], object]) -> None:
        self._queue = queue
        self._partitions = partitions
        self._publish = publish
        self._leading = False

    def lead(self, leading: bool) -> None:  # noqa: FBT001 - the one fact that it is told
        """Start, or cease, to export."""
        self._leading = leading
        if not leading:
            self._publish(None)

    async def run_once(self) -> None:
        """Look and publish."""
        values = await self._queue.look()
        values["partitions_ahead"] = await self._partitions.count_ahead()
        if self._leading:
            self._publish(values)
