"""A timer that rings at the earliest of the instants that it was set to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from math import inf
from typing import Final

LEAST: Final = 0.001  # seconds


class Alarm:
    """Calls ``ring`` once, at the earliest of the instants that it was set to; after that it may be set again.

    When it rings is kept here, since a handle of uvloop cannot always tell: for an instant that is over, ``call_at``
    returns one without a time.
    """

    def __init__(self, ring: Callable[[], object]) -> None:
        self._ring = ring
        self._rings_at = inf
        self._handle: asyncio.Handle | None = None

    def set(self, seconds: float) -> None:
        """Ring in so many seconds, unless it rings earlier anyway."""
        loop = asyncio.get_running_loop()
        rings_at = loop.time() + max(seconds, LEAST)
        if rings_at < self._rings_at:
            self.clear()
            self._rings_at = rings_at
            self._handle = loop.call_at(rings_at, self._go_off)

    def clear(self) -> None:
        """Ring no more until it is set again."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self._rings_at = None, inf

    def _go_off(self) -> None:
        self._handle, self._rings_at = None, inf
        self._ring()
