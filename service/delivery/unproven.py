"""Attempts of lanes that are not proven: how many may be slow at the same time, and how far apart they start.

Belongs here: limits on all these lanes together. Does not belong here: how many attempts one lane may run (``lanes``), or
one host (its gate), and whose turn it is (``slots``).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from service.delivery.lanes import Trust
from service.delivery.ready import ReadyDelivery

SLOW_AFTER: Final = 1.0  # seconds
AT_ONCE: Final = 100  # attempts in flight, from which on the next ones start apart
APART: Final = 0.02  # seconds


class Unproven:
    """Counts the attempts in flight of lanes that are not proven, and the ``slow`` ones among them: those over a second.

    A suspect starts nothing while a quarter of the slots is held by slow attempts, a new lane while half is. Once a
    hundred are in flight, at most 50 a second start: otherwise receivers that hang would time out, and be tried again,
    all at once. Instants are monotonic seconds.
    """

    def __init__(self, slots: int) -> None:
        self.slow = 0
        self._in_flight = 0
        self._next_at = float("-inf")
        self._young: deque[tuple[float, ReadyDelivery]] = deque()
        self._slow_limits = {Trust.NEW: max(1, slots // 2), Trust.SUSPECT: max(1, slots // 4)}

    def start(self, row: ReadyDelivery) -> None:
        """An attempt has started, at ``row.started``."""
        self._in_flight += 1
        self._next_at = row.started + APART
        self._young.append((row.started, row))

    def end(self, row: ReadyDelivery) -> None:
        """It has ended, or gave its slot back."""
        self._in_flight -= 1
        self.slow -= row.slow
        row.slow = False

    def age(self, now: float) -> None:
        """Count the attempts that have become slow by ``now``."""
        while self._young and self._young[0][0] <= now - SLOW_AFTER:
            started, row = self._young.popleft()
            if row.running and row.started == started and not row.slow:  # else it has ended, and may be at another one
                row.slow = True
                self.slow += 1

    def admits(self, trust: Trust, now: float) -> bool:
        """Whether an attempt of a lane that is trusted so far may start."""
        return self.slow < self._slow_limits[trust] and not self.find_pause(now)

    def find_pause(self, now: float) -> float:
        """Seconds until the next one may start, as far as the distance between them goes; 0: now."""
        return max(0.0, self._next_at - now) if self._in_flight >= AT_ONCE else 0.0
