"""Instants: which ones there are to be kept.

Belongs here: the bounds of time. PostgreSQL's driver takes the very first and the very last instant of a ``datetime`` for
minus and plus infinity, which come back as no instants at all; and they are what programs write that have no time (Go's
zero ``time.Time``, ``datetime.max``).
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

EARLIEST: Final = datetime.min.replace(tzinfo=UTC) + timedelta(microseconds=1)
LATEST: Final = datetime.max.replace(tzinfo=UTC) - timedelta(microseconds=1)


def in_utc(at: datetime) -> datetime | None:
    """Return the instant in UTC; None for what is outside the years 1 to 9999 there, or their first or last instant."""
    try:
        instant = at.astimezone(UTC)
    except OverflowError:
        return None
    return instant if EARLIEST <= instant <= LATEST else None


def clamp(at: datetime) -> datetime | None:
    """Like ``in_utc``, but with the nearest instant that can be kept in place of the first and the last one."""
    try:
        return min(max(at.astimezone(UTC), EARLIEST), LATEST)
    except OverflowError:
        return None
