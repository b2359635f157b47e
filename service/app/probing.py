"""The one question that every role asks the database: what time is it?

Belongs here: asking often enough that ``db_pool_size`` is 0 only while the database cannot be reached (an idle pool
closes its connections), and the clocks' difference. Does not belong here: the clock that deliveries are due by
(``delivery.instants``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from service.lifecycle import Clock, Stop
from service.ports import StoreUnavailable
from service.store.database import Database

EVERY = 5.0


class ClockSkewProbe:
    """The worker that reports this machine's clock minus the database's, in seconds; nothing while it is away."""

    name = "clock_skew"

    def __init__(self, clock: Clock, database: Database, report: Callable[[float], object]) -> None:
        self._clock = clock
        self._database = database
        self._report = report

    async def run(self, stop: Stop) -> None:
        """Ask every few seconds until the stop."""
        while True:
            with suppress(StoreUnavailable):
                self._report(await self.measure())
            if await stop.pause(EVERY):
                return

    async def measure(self) -> float:
        """Ask once: the answer is taken for the middle of the wait. Raises StoreUnavailable."""
        async with self._database.session() as session:
            asked = self._clock.now()
            told = await session.value("transaction_now")
            return float((asked + (self._clock.now() - asked) / 2 - told).total_seconds())
