"""The state of the queue for the gauges, from cheap look-ups: counts stop early and are estimated beyond that.

Belongs here: reading. Does not belong here: how often, and where it is shown (``upkeep.gauges``).
"""

from __future__ import annotations

from typing import Any

from service.store.codes import WebhookStateCode
from service.store.database import Database

COUNTED = 10_000  # beyond so many rows, the planner's estimate is good enough


class QueueLook:
    """Looks at the queue. Raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def look(self) -> dict[str, Any]:
        """Return the values of the queue's gauges by name; ``webhooks`` by state."""
        async with self._database.session() as session:
            row = await session.find("gauges_queue", COUNTED)
            states = await session.fetch("gauges_webhooks")
        assert row is not None
        webhooks = {WebhookStateCode(state["state"]).word: state["count"] for state in states}
        return {**dict(row), "webhooks": webhooks}
