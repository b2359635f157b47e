"""Rate limits of webhooks: attempts drawn in small batches from a bucket that all processes share.

Belongs here: asking for as many as are needed soon. Does not belong here: the bucket (``service.store``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final, Protocol

from service.delivery.catalog import Catalog
from service.delivery.slots import Slots
from service.ports import Conflict, StoreUnavailable

EVERY: Final = 0.1  # seconds between draws, and what a draw lasts for
BACK_OFF: Final = 1.0  # seconds


class RateStore(Protocol):
    """The buckets. May raise StoreUnavailable or Conflict."""

    async def draw(self, wanted: Mapping[int, int]) -> Mapping[int, int]:
        """Draw attempts per webhook key; return how many were granted."""


class Rates:
    """Keeps lanes with a rate limit supplied while they have something to send."""

    def __init__(self, store: RateStore, catalog: Catalog, slots: Slots) -> None:
        self._store = store
        self._catalog = catalog
        self._slots = slots

    async def draw(self) -> bool:
        """Draw once for every lane that waits for its rate limit; True when some lane may go on."""
        wanted: dict[int, int] = {}
        lanes: dict[int, int] = {}
        for lane in self._slots.list_thirsty():
            webhook_key = lane.rows[0].webhook_key
            entry = self._catalog.find(webhook_key)
            rate = entry.rate_limit if entry else None
            if rate is not None:
                wanted[webhook_key] = min(len(lane.rows), max(1, int(rate * EVERY)))
                lanes[webhook_key] = lane.key
        granted = await self._store.draw(wanted) if wanted else {}
        for webhook_key, tokens in granted.items():
            self._slots.grant(lanes[webhook_key], tokens)
        return any(granted.values())

    async def keep_drawing(self) -> bool:
        """Wait a tenth of a second (longer after trouble), then draw."""
        await asyncio.sleep(EVERY)
        try:
            return await self.draw()
        except (StoreUnavailable, Conflict):
            await asyncio.sleep(BACK_OFF)
            return False
