"""The one question that every role asks the database: what time is it?

Belongs here: asking often enough that ``db_pool_size`` is 0 only while the database cannot be reached (an idle pool
closes its connections), the clocks' difference, and the time that all processes agree on. Does not belong here: the
clock that deliveries are due by (``delivery.instants``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from service.lifecycle import Clock, Stop
from service.ports import StoreUnavailable
from service.store.database import Database

EVERY = 5.0  # seconds
PROMPT = 1.0  # seconds; a slower answer tells the time too badly to replace one that is known


class AgreedClock:
    """The time that all processes agree on: the database's, carried on by this machine's monotonic clock.

    What one process writes (the end of a secret's overlap, say) others compare with their own now, so a machine whose
    wall clock is wrong must not matter. Until the database has answered once, it is the machine's wall clock.
    """

    def __init__(self, machine: Clock) -> None:
        self.machine = machine
        self._told: tuple[datetime, float] | None = None

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never steps."""
        return self.machine.monotonic()

    def now(self) -> datetime:
        """The instant, aware, in UTC."""
        if self._told is None:
            return self.machine.now()
        told, at = self._told
        return told + timedelta(seconds=self.machine.monotonic() - at)

    def agree(self, told: datetime, asked: float, answered: float) -> None:
        """Take in that the database said ``told`` between the monotonic instants ``asked`` and ``answered``."""
        if self._told is None or answered - asked < PROMPT:
            self._told = told, (asked + answered) / 2


class ClockSkewProbe:
    """The worker that keeps the agreed clock, and reports the machine's minus the database's, in seconds."""

    name = "clock_skew"

    def __init__(self, clock: AgreedClock, database: Database, report: Callable[[float], object]) -> None:
        self._clock = clock
        self._database = database
        self._report = report

    async def run(self, stop: Stop) -> None:
        """Ask every few seconds until the stop; nothing is reported while the database is away."""
        while True:
            with suppress(StoreUnavailable):
                self._report(await measure_skew(self._clock, self._database))
            if await stop.pause(EVERY):
                return


async def measure_skew(clock: AgreedClock, database: Database) -> float:
    """Ask once: the answer is taken for the middle of the wait. Raises StoreUnavailable."""
    async with database.session() as session:
        asked, asked_at = clock.monotonic(), clock.machine.now()
        told: datetime = await session.value("transaction_now")
        answered, answered_at = clock.monotonic(), clock.machine.now()
    clock.agree(told, asked, answered)
    return (asked_at + (answered_at - asked_at) / 2 - told).total_seconds()
