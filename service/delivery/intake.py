"""Bringing in new work, as named loops: claims and surveys, leases of what waits, and what ingest hands over.

Belongs here: when each of those is done. Does not belong here: what they do (``claiming``, ``handoff``), and what is done
with the work (``engine``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

from service.delivery.alarm import Alarm
from service.delivery.claiming import Claimer, ClaimStore
from service.delivery.handoff import LocalHandoff
from service.delivery.instants import DatabaseClock, Monotonic
from service.delivery.slots import Slots
from service.lifecycle import beat, heed, rest, wait_at_most
from service.ports import Conflict, StoreUnavailable

POLL: Final = 1.0  # seconds between claims that look everywhere, when nothing asks for one earlier
FAR_AWAY: Final = 3_600.0  # seconds; what is due later needs no timer, since polls find it
SOON: Final = 0.02  # seconds to the next claim after one that brought something
BACK_OFF: Final = 0.25  # seconds, after trouble and between claims that bring little
LANES_PASSED: Final = 4  # without room, for each delivery that a claim brings: more, and the claim was not worth it
REST_AFTER_CLAIM: Final = 3.0  # times as long as the claims took, after such a one
SURVEY_EVERY: Final = 10.0  # seconds
SURVEY_SHARE: Final = 20.0  # but at least so many times as long as the last survey took, so that it has 5 % of the time
REST_AFTER_SURVEY: Final = 3.0  # times as long as it took, even if the next one is asked for earlier
CLAIMING: Final = "claiming"

Loop = Callable[[], Coroutine[Any, Any, None]]


class Intake:
    """Fills the slots. ``may_send`` tells whether attempts may start now; ``on_ready`` is called when some can.

    A claim asks for the lanes that are known to have something due (``Backlog``). A claim *everywhere* also looks for
    other lanes, among what became due lately; ``claimed_at`` is the monotonic instant of the last one. A survey looks at
    all lanes.
    """

    def __init__(
        self,
        *,
        clock: Monotonic,
        instants: DatabaseClock,
        slots: Slots,
        claimer: Claimer,
        claims: ClaimStore,
        handoff: LocalHandoff,
    ) -> None:
        self._clock = clock
        self._instants = instants
        self._slots = slots
        self._claims = claims
        self.claimer = claimer
        self.handoff = handoff
        self.may_send: Callable[[], bool] = lambda: False
        self.on_ready: Callable[[], object] = lambda: None
        self.claimed_at = float("-inf")
        self._wanted = asyncio.Event()
        self._everywhere = True
        self._unseen = asyncio.Event()
        self._arrived = asyncio.Event()
        self._alarm = Alarm(self.claim_everywhere)
        self._starved = False
        self._closed = False
        handoff.on_arrival = self._arrived.set
        handoff.on_due = self.claim_everywhere

    def list_loops(self) -> dict[str, Loop]:
        """What is to be run until ``close``. ``CLAIMING`` ends by itself after that: see ``Claimer.asking``."""
        return {
            CLAIMING: self._keep_claiming,
            "surveying": self._keep_surveying,
            "leases": self._keep_leases,
            "arrivals": self._keep_letting_in,
        }

    def close(self) -> None:
        """Begin no other claim."""
        self._closed = True
        self._alarm.clear()

    def hand_back(self) -> None:
        """Give up the leases of everything that has not started."""
        self.claimer.hand_back([*self._slots.withdraw(lambda _: True), *self.handoff.arrivals])
        self.handoff.arrivals = []

    # --- when to claim --------------------------------------------------------------------------------------------

    def claim_everywhere(self) -> None:
        """Something may be due in a lane that is not known to have anything: look everywhere, soon."""
        self._everywhere = True
        self._wanted.set()

    def plan_at(self, at: datetime) -> None:
        """Something becomes due at this instant."""
        self._plan(at.timestamp() - self._instants.epoch())

    def look_for_room(self, lane: int) -> None:
        """After an attempt: claim when there is room for what had to be left in the database."""
        buffer = self._slots.buffer
        if self._starved and buffer.free * 4 >= buffer.size:
            self.claim_everywhere()
        elif self.claimer.wants_more(lane):
            self._wanted.set()

    def _plan(self, seconds: float | None) -> None:
        """Claim again after so long, or earlier if that was planned already."""
        if seconds is not None and seconds <= FAR_AWAY and not self._closed:
            self._alarm.set(seconds)

    async def _plan_next(self) -> None:
        """Claim again when the next delivery becomes due, or soon if this claim brought something.

        While lanes without room are passed by, no sooner than the back-off: the next claim would pass them by again.
        """
        claimer = self.claimer
        wait = SOON if claimer.took else await self._claims.find_wait()
        self._plan(max(wait, BACK_OFF) if wait is not None and claimer.passed else wait)

    # --- the loops ------------------------------------------------------------------------------------------------

    async def _keep_claiming(self) -> None:
        spent = 0.0
        while not self._closed:
            beat()
            await wait_at_most(self._wanted, POLL)
            self._wanted.clear()
            if not self.may_send():
                await asyncio.sleep(BACK_OFF)
                continue
            began = self._clock.monotonic()
            try:
                more = await self._claim()
            except (StoreUnavailable, Conflict):
                await asyncio.sleep(BACK_OFF)
                self.claim_everywhere()
                continue
            spent += self._clock.monotonic() - began
            if not more and not self._closed:
                await self._rest(spent)
                spent = 0.0

    async def _claim(self) -> bool:
        """Claim once, and plan the next time; whether there is more to be had at once."""
        claimer = self.claimer
        now = self._clock.monotonic()
        everywhere = self._everywhere or now >= self.claimed_at + POLL
        if everywhere:
            self._everywhere, self.claimed_at = False, now
        more = await claimer.claim(everywhere=everywhere)
        self.on_ready()
        self._starved = not self._slots.buffer.free
        if claimer.cut:
            self._unseen.set()
        if more:
            self._wanted.set()
        if everywhere and not self._starved and not self._closed:
            await self._plan_next()
        return more

    async def _rest(self, spent: float) -> None:
        """Pause after a claim that brought little and had to pass many lanes: the next one would be no cheaper."""
        if self.claimer.took <= self.claimer.passed // LANES_PASSED:
            await asyncio.sleep(min(BACK_OFF, REST_AFTER_CLAIM * spent))

    async def _keep_surveying(self) -> None:
        """Find what claims may miss: lanes behind many others, and what was committed long after it was due."""
        spent = 0.0
        while True:
            await wait_at_most(self._unseen, max(SURVEY_EVERY, SURVEY_SHARE * spent))
            self._unseen.clear()
            began = self._clock.monotonic()
            try:
                await self.claimer.survey()
            except (StoreUnavailable, Conflict):
                self._unseen.set()
                await asyncio.sleep(BACK_OFF)
                continue
            self._wanted.set()
            spent = self._clock.monotonic() - began
            await rest(REST_AFTER_SURVEY * spent)

    async def _keep_leases(self) -> None:
        while True:
            await rest(self.claimer.lease / 6)
            with suppress(StoreUnavailable, Conflict):
                await self.claimer.keep_leases()

    async def _keep_letting_in(self) -> None:
        """Let in what ingest handed over for webhooks that are not known here yet."""
        while True:
            await heed(self._arrived)
            self._arrived.clear()
            rows, self.handoff.arrivals = self.handoff.arrivals, []
            with suppress(StoreUnavailable, Conflict):
                await self.claimer.let_in(rows)
            self.on_ready()
