"""Roll-ups of attempts, per webhook, outcome and five minutes, and what is read from them.

Belongs here: making roll-ups (upkeep calls ``roll_up`` every minute) and reading them. Attempts themselves are never
counted when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from service.store.database import Row, Session

BOUNDS_MS = (10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 15_000, 30_000)
"""Upper bounds of the histogram's buckets; one more bucket holds what is above."""
BUCKET = timedelta(minutes=5)
LAG = timedelta(seconds=30)
"""How long after its start an attempt's record may still come: twice the usual deadline."""


@dataclass(slots=True)
class Window:
    """What happened in one span."""

    outcomes: dict[str, int] = field(default_factory=dict)
    duration_ms: int = 0
    histogram: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS_MS) + 1))

    @property
    def attempts(self) -> int:
        """All attempts."""
        return sum(self.outcomes.values())

    @property
    def success_ratio(self) -> float | None:
        """Share of accepted attempts; None without attempts."""
        return self.outcomes.get("delivered", 0) / self.attempts if self.attempts else None

    @property
    def mean_ms(self) -> float | None:
        """Mean duration."""
        return self.duration_ms / self.attempts if self.attempts else None

    def quantile_ms(self, share: float) -> int | None:
        """Upper bound of the bucket that holds the quantile; None without attempts."""
        rest = share * sum(self.histogram)
        for bound, count in zip((*BOUNDS_MS, BOUNDS_MS[-1]), self.histogram, strict=True):
            rest -= count
            if count and rest <= 0:
                return bound
        return None


def _sum(rows: Sequence[Row]) -> Window:
    window = Window()
    for row in rows:
        window.outcomes[row["outcome"]] = row["attempts"]
        window.duration_ms += row["duration_ms"]
        window.histogram = [a + b for a, b in zip(window.histogram, row["histogram"], strict=True)]
    return window


async def read_window(session: Session, webhook_key: int, since: datetime) -> Window:
    """Sum the roll-ups of a webhook since an instant."""
    return _sum(await session.fetch("stats_read", webhook_key, since, len(BOUNDS_MS) + 1))


async def roll_up(session: Session) -> bool:
    """Roll up the attempts since the last time, inside a transaction; True when there may be more to do at once."""
    more: bool | None = await session.value("stats_roll_up", list(BOUNDS_MS), BUCKET, LAG)
    return bool(more)


async def prune_rollups(session: Session, older_than: datetime) -> None:
    """Forget old roll-ups."""
    await session.execute("stats_prune", older_than)
