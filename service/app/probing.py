"""The one question that every role asks the database: what time is it?

Belongs here: asking often enough that ``db_pool_size`` is 0 only while the database cannot be reached (an idle pool
closes its connections), telling once that it is away or takes no writes and once that it is back, the clocks'
difference, and the time that all processes agree on. Does not belong here: the clock that deliveries are due by
(``delivery.instants``).
"""

from __future__ import annotations

from collections.abc import Callable
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

    def __init__(
        self, clock: AgreedClock, database: Database, report: Callable[[float], object], tell: Callable[..., object]
    ) -> None:
        """``tell(event, **fields)`` takes ``database_unavailable``, with a reason, and ``database_back``."""
        self._clock = clock
        self._database = database
        self._report = report
        self._tell = tell
        self._reason = ""

    async def run(self, stop: Stop) -> None:
        """Look every few seconds until the stop."""
        while True:
            await self.look()
            if await stop.pause(EVERY):
                return

    async def look(self) -> None:
        """Ask once; nothing is reported while the database is away."""
        try:
            self._report(await measure_skew(self._clock, self._database))
            reason = await find_refusal(self._database)
        except StoreUnavailable as error:
            reason = str(error) or "no answer"
        if reason and not self._reason:
            self._tell("database_unavailable", reason=reason)
        elif self._reason and not reason:
            self._tell("database_back")
        self._reason = reason


async def find_refusal(database: Database) -> str:
    """``read_only`` when the database answers but takes no writes, as after a failover. Raises StoreUnavailable."""
    async with database.session() as session:
        return "read_only" if await session.value("transaction_read_only") else ""


async def measure_skew(clock: AgreedClock, database: Database) -> float:
    """Ask once: the answer is taken for the middle of the wait. Raises StoreUnavailable."""
    async with database.session() as session:
        asked, asked_at = clock.monotonic(), clock.machine.now()
        told: datetime = await session.value("transaction_now")
        answered, answered_at = clock.monotonic(), clock.machine.now()
    clock.agree(told, asked, answered)
    return (asked_at + (answered_at - asked_at) / 2 - told).total_seconds()
