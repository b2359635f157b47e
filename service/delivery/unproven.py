"""Attempts of lanes that have not proven themselves: how many may be slow at the same time, and how far apart they start.

Belongs here: counting these attempts. Does not belong here: how many one lane may run (``lanes``), or one host (its gate),
and whose turn it is (``slots``).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from service.delivery.lanes import Trust
from service.delivery.ready import ReadyDelivery

SLOW_AFTER: Final = 1.0
AT_ONCE: Final = 100
APART: Final = 0.02


class Unproven:
    """The attempts in flight of such lanes, ``slow`` ones among them; instants are monotonic.

    Those that last longer than a second hold at most a quarter of the slots as far as suspects go, and half with new
    lanes. Once a hundred are in flight, no more than 50 a second start, so that those which hang neither start nor time
    out in step.
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
        """Count those that run for long; one that has started again since is another."""
        while self._young and self._young[0][0] <= now - SLOW_AFTER:
            started, row = self._young.popleft()
            if row.running and row.started == started and not row.slow:
                row.slow = True
                self.slow += 1

    def admits(self, trust: Trust, now: float) -> bool:
        """Whether an attempt of a lane that is trusted so far may start."""
        return self.slow < self._slow_limits[trust] and not self.find_pause(now)

    def find_pause(self, now: float) -> float:
        """Seconds until one may start that waits only for not being in step with others; 0 if none has to."""
        return max(0.0, self._next_at - now) if self._in_flight >= AT_ONCE else 0.0
