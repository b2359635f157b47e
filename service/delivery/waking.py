"""Telling other processes that something is due: a NOTIFY after the commit, one for many commits.

Belongs here: coalescing. Does not belong here: listening (``engine``) and the connections (``service.store``).
"""

from __future__ import annotations

import asyncio
from typing import Final, Protocol

from service.lifecycle import Stop
from service.ports import StoreUnavailable

EVERY: Final = 0.02  # at most 50 a second
BACK_OFF: Final = 1.0  # seconds


class Notifier(Protocol):
    """Sends the notification. May raise StoreUnavailable."""

    async def notify_due(self) -> None:
        """Tell every deliver process that a delivery without a lease is due."""


class Waker:
    """A worker that notifies once for all calls of ``wake`` within 20 ms. If one is lost, polls find what is due."""

    name = "waking"

    def __init__(self, notifier: Notifier) -> None:
        self._notifier = notifier
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        """Deliveries without a lease are due since a commit."""
        self._wanted.set()

    async def run(self, stop: Stop) -> None:
        """Notify until the stop."""
        async with asyncio.TaskGroup() as group:
            task = group.create_task(self._keep_notifying())
            await stop.wait()
            task.cancel()

    async def _keep_notifying(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._notifier.notify_due()
            except StoreUnavailable:
                self._wanted.set()
                await asyncio.sleep(BACK_OFF)
            await asyncio.sleep(EVERY)
