"""Deadlines: one sweep over what is in flight, ten times a second, instead of a timer for each attempt (chapter 5)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

INTERVAL = 0.1  # seconds between sweeps
PACE = 0.01  # seconds between slices of what is overdue
SLICE = 8  # expired at a time, at the least
SLICES = 64  # for all that is overdue, at the most: two thirds of a second


class Watched(Protocol):
    """What has a deadline, in seconds of the sweep's clock."""

    deadline: float

    def expire(self) -> None:
        """The deadline has passed; takes itself out of ``Sweep.watched``."""


class Sweep:
    """Expires what is overdue, a slice at a time.

    When hundreds of receivers hang at once, expiring all of them in one go would hold up the loop, and their next
    attempts would start at once again. All are expired within two thirds of a second. ``watched`` is the set itself:
    joining and leaving it costs no call.
    """

    def __init__(self, clock: Callable[[], float], housekeeping: Callable[[float], None]) -> None:
        self.watched: set[Watched] = set()
        self._clock = clock
        self._housekeeping = housekeeping
        self._overdue: list[Watched] = []
        self._timer: asyncio.TimerHandle | None = None
        self._slices: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin sweeping on the running loop."""
        self._timer = asyncio.get_running_loop().call_later(INTERVAL, self._turn)

    def stop(self) -> None:
        """End sweeping."""
        for timer in (self._timer, self._slices):
            if timer is not None:
                timer.cancel()
        self._timer = self._slices = None

    def _turn(self) -> None:
        self.start()
        now = self._clock()
        overdue = [each for each in self.watched if each.deadline <= now]
        if overdue and not self._overdue:
            self._overdue = overdue
            self._expire_some(max(SLICE, len(overdue) // SLICES), now)
        self._housekeeping(now)

    def _expire_some(self, count: int, now: float) -> None:
        """Expire the last few; the others in later turns of the loop, so that it serves everybody else between."""
        overdue = self._overdue
        for each in overdue[-count:]:
            if each in self.watched and each.deadline <= now:  # it may have ended, and be at another request by now
                each.expire()
        del overdue[-count:]
        if overdue and self._timer is not None:
            self._slices = asyncio.get_running_loop().call_later(PACE, self._expire_some, count, now)
