"""Deadlines: one sweep over what is in flight, ten times a second, instead of a timer for each attempt (chapter 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

INTERVAL = 0.1


class Watched(Protocol):
    """What has a deadline, in seconds of the sweep's clock."""

    deadline: float

    def expire(self) -> None:
        """The deadline has passed; takes itself out of ``Sweep.watched``."""


class Sweep:
    """Expires what is overdue. ``watched`` is the set itself: joining and leaving it costs no call."""

    def __init__(self, clock: Callable[[], float], housekeeping: Callable[[float], None]) -> None:
        self.watched: set[Watched] = set()
        self._clock = clock
        self._housekeeping = housekeeping
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin sweeping on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._turn)

    def stop(self) -> None:
        """End sweeping."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _turn(self) -> None:
        self.start()
        now = self._clock()
        for overdue in [each for each in self.watched if each.deadline <= now]:
            overdue.expire()
        self._housekeeping(now)
