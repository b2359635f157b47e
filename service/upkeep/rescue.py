"""Rescue: leases that ran out because their process died or froze go back to the queue.

Belongs here: when it is safe to. Does not belong here: what a rescued delivery becomes (``store/sql/deliveries_release``).
"""

from __future__ import annotations

from typing import Final, Protocol

from service.ports import Freed, StoreUnavailable

CALM: Final = 6.0  # seconds
AT_ONCE: Final = 500  # leases


class Monotonic(Protocol):
    """A clock for durations."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never steps."""


class LeaseStore(Protocol):
    """The queue. Every method may raise StoreUnavailable or Conflict."""

    async def rescue(self, limit: int) -> Freed:
        """Take expired leases off, at most ``limit``."""

    async def wake_orphans(self, limit: int) -> int:
        """Make deliveries due that wait for another one that is not leased any more; return how many."""


class Leases(Protocol):
    """Counts what was rescued."""

    def leases_expired(self, count: int) -> None:
        """Leases ran out."""

    def deliveries_finished(self, state: str, count: int = 1) -> None:
        """Deliveries have left the queue."""


class Rescue:
    """One round over expired leases.

    Nothing is rescued until the database has answered for six seconds: after an outage, workers write the outcomes that
    they could not write before their leases are taken off.
    """

    def __init__(self, store: LeaseStore, clock: Monotonic, leases: Leases) -> None:
        self._store = store
        self._clock = clock
        self._leases = leases
        self._answers_since: float | None = None

    async def run_once(self) -> None:
        """Rescue what has expired, a few hundred at a time."""
        try:
            await self._store.wake_orphans(AT_ONCE)
            if self._is_calm():
                await self._rescue()
        except StoreUnavailable:
            self._answers_since = None
            raise

    def _is_calm(self) -> bool:
        now = self._clock.monotonic()
        if self._answers_since is None:
            self._answers_since = now
        return now - self._answers_since >= CALM

    async def _rescue(self) -> None:
        rescued = AT_ONCE
        while rescued == AT_ONCE:
            rescued, ended = await self._store.rescue(AT_ONCE)
            self._leases.leases_expired(rescued)
            for state, count in ended.items():
                self._leases.deliveries_finished(state, count)
