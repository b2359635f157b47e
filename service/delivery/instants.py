"""The database's clock, without asking it each time.

Belongs here: the offset between this process's monotonic clock and the database's clock. The machine's own wall clock
plays no part, so stepping it changes nothing.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol


class Monotonic(Protocol):
    """The only clock that delivery reads."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never steps."""


class DatabaseClock:
    """Seconds since 1970 by the database's clock, from the last offset that was measured."""

    def __init__(self, clock: Monotonic) -> None:
        self._clock = clock
        self._offset = 0.0
        self.known = False

    def measure(self, epoch: float, asked: float, answered: float) -> None:
        """Take in that the database said ``epoch`` between the monotonic instants ``asked`` and ``answered``."""
        self._offset = epoch - (asked + answered) / 2
        self.known = True

    def epoch(self) -> float:
        """Seconds since 1970, now."""
        return self._clock.monotonic() + self._offset

    def at(self, monotonic: float) -> float:
        """Seconds since 1970 at a monotonic instant of this process."""
        return monotonic + self._offset

    def now(self) -> datetime:
        """The same as an instant."""
        return instant(self.epoch())


def instant(epoch: float) -> datetime:
    """The aware instant of seconds since 1970."""
    return datetime.fromtimestamp(epoch, UTC)
