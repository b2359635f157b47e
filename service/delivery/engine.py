"""The deliver role as one worker with named loops.

Belongs here: when to claim, refresh, renew and record, and the order of a clean stop. Does not belong here: what those
do; each has its module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from service.delivery.alarm import Alarm
from service.delivery.attempting import Attempts
from service.delivery.catalog import Catalog
from service.delivery.claiming import Claimer, ClaimStore
from service.delivery.entries import Entry
from service.delivery.handoff import LocalHandoff
from service.delivery.instants import DatabaseClock, Monotonic
from service.delivery.observing import Observations
from service.delivery.rates import Rates
from service.delivery.recording import Recorder
from service.delivery.sending import Crew
from service.delivery.slots import Slots
from service.lifecycle import Heartbeats, Stop, beat, heed, rest, wait_at_most
from service.ports import Conflict, StoreUnavailable, Tell

DUE_CHANNEL: Final = "webhookd_due"
WEBHOOKS_CHANNEL: Final = "webhookd_webhooks"
POLL: Final = 1.0
REFRESH: Final = 1.0
FAR_AWAY: Final = 3_600.0
SOON: Final = 0.02
BACK_OFF: Final = 0.25
IN_VAIN: Final = 3.0
WORTH: Final = 4
SURVEY: Final = 10.0
SELDOM: Final = 20.0
LAST_WRITES: Final = 2.5
LAST_CLAIM: Final = 1.0
CLAIMING: Final = "claiming"

Loop = Callable[[], Coroutine[Any, Any, None]]


class Listener(Protocol):
    """Hears notifications on a connection of its own, which also counts this process as a live one."""

    async def listen(self, handlers: Mapping[str, Callable[[], object]]) -> None:
        """Call the handler of a channel at each notification, until the connection ends: StoreUnavailable."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What the engine runs, built by the composition root."""

    clock: Monotonic
    instants: DatabaseClock
    catalog: Catalog
    slots: Slots
    claimer: Claimer
    claims: ClaimStore
    attempts: Attempts
    recorder: Recorder
    observations: Observations
    rates: Rates
    handoff: LocalHandoff
    listener: Listener
    heartbeats: Heartbeats
    tell: Tell


class Engine:
    """Claims, attempts and records until the stop; then lets attempts end, hands leases back and records the rest."""

    name = "delivery"

    def __init__(self, parts: EngineParts) -> None:
        self._parts = parts
        self._slots = parts.slots
        self._crew = Crew(parts.slots, parts.attempts, parts.clock, self._may_start)
        self._wanted = asyncio.Event()
        self._everywhere = True
        self._looked_at = float("-inf")
        self._unseen = asyncio.Event()
        self._changed = asyncio.Event()
        self._arrived = asyncio.Event()
        self._alarm = Alarm(self._claim_everywhere)
        self._starved = False
        self._running = False
        self._connect()

    def may_send(self) -> bool:
        """Whether attempts may start now."""
        return self._may_start(self._parts.clock.monotonic())

    def _may_start(self, now: float) -> bool:
        """We run, what we know is fresh, and outcomes find their way into the database."""
        parts = self._parts
        return (
            self._running
            and now <= parts.catalog.fresh_until
            and now >= parts.attempts.cool_until
            and parts.recorder.open
        )

    async def run(self, stop: Stop) -> None:
        """Work until the stop, then drain within its budget."""
        self._running = True
        async with asyncio.TaskGroup() as group:
            self._crew.start(group)
            lasting = self._start(group, self._list_lasting_loops())
            ending = self._start(group, self._list_claiming_loops())
            await stop.wait()
            self._running = False
            for task in ending:
                if not (task.get_name() == CLAIMING and self._parts.claimer.asking):
                    task.cancel()
            await self._drain(stop, ending)
            for task in lasting:
                task.cancel()

    def _start(self, group: asyncio.TaskGroup, loops: Mapping[str, Loop]) -> list[asyncio.Task[None]]:
        return [group.create_task(self._watch(name, loop), name=name) for name, loop in loops.items()]

    async def _watch(self, name: str, loop: Loop) -> None:
        with self._parts.heartbeats.turning(name):
            await loop()

    def _list_lasting_loops(self) -> dict[str, Loop]:
        """Loops that go on while the last attempts end."""
        return {
            "recording": self._parts.recorder.run,
            "observing": self._parts.observations.run,
            "refreshing": self._keep_refreshing,
        }

    def _list_claiming_loops(self) -> dict[str, Loop]:
        """Loops that bring in new work."""
        return {
            CLAIMING: self._keep_claiming,
            "surveying": self._keep_surveying,
            "listening": self._keep_listening,
            "leases": self._keep_leases,
            "rates": self._keep_drawing,
            "arrivals": self._keep_letting_in,
        }

    def _connect(self) -> None:
        parts, crew = self._parts, self._crew
        crew.on_done = self._look_for_room
        parts.attempts.may_send = self.may_send
        parts.handoff.may_send = self.may_send
        parts.handoff.on_ready = crew.wake
        parts.handoff.on_arrival = self._arrived.set
        parts.handoff.on_due = self._claim_everywhere
        parts.recorder.on_written = self._written
        parts.recorder.on_planned = self._plan_at
        parts.observations.on_health = self._apply_health
        parts.catalog.on_replaced = self._empty_lane

    # --- claiming -------------------------------------------------------------------------------------------------

    def _claim_everywhere(self) -> None:
        """Something may be due anywhere."""
        self._everywhere = True
        self._wanted.set()

    async def _keep_claiming(self) -> None:
        spent = 0.0
        while self._running:
            beat()
            await wait_at_most(self._wanted, POLL)
            self._wanted.clear()
            if not self.may_send():
                await wait_at_most(self._changed, BACK_OFF)
                continue
            began = self._parts.clock.monotonic()
            try:
                more = await self._claim()
            except (StoreUnavailable, Conflict):
                await asyncio.sleep(BACK_OFF)
                self._claim_everywhere()
                continue
            spent += self._parts.clock.monotonic() - began
            if not more and self._running:
                await self._rest(spent)
                spent = 0.0

    async def _claim(self) -> bool:
        """Claim once, and plan the next time; whether there is more to be had at once."""
        claimer = self._parts.claimer
        now = self._parts.clock.monotonic()
        everywhere = self._everywhere or now >= self._looked_at + POLL
        if everywhere:
            self._everywhere, self._looked_at = False, now
        more = await claimer.claim(everywhere=everywhere)
        self._crew.wake()
        self._starved = not self._slots.buffer.free
        if claimer.cut:
            self._unseen.set()
        if more:
            self._wanted.set()
        if everywhere and not self._starved and self._running:
            await self._plan_next(claimer)
        return more

    async def _plan_next(self, claimer: Claimer) -> None:
        """Claim again when the next delivery becomes due; later, if what is due has no room."""
        wait = SOON if claimer.took else await self._parts.claims.find_wait()
        self._plan(max(wait, BACK_OFF) if wait is not None and claimer.passed else wait)

    async def _rest(self, spent: float) -> None:
        """After a claim that brought little for the lanes that it went past: that is dear, and may be so for long."""
        if self._parts.claimer.took <= self._parts.claimer.passed // WORTH:
            await asyncio.sleep(min(BACK_OFF, IN_VAIN * spent))

    async def _keep_surveying(self) -> None:
        """Find what claims do not: lanes behind many others, and what was due long before its transaction ended."""
        spent = 0.0
        while True:
            await wait_at_most(self._unseen, max(SURVEY, SELDOM * spent))
            self._unseen.clear()
            began = self._parts.clock.monotonic()
            try:
                await self._parts.claimer.survey()
            except (StoreUnavailable, Conflict):
                self._unseen.set()
                await asyncio.sleep(BACK_OFF)
                continue
            self._wanted.set()
            spent = self._parts.clock.monotonic() - began
            await rest(IN_VAIN * spent)

    def _plan(self, seconds: float | None) -> None:
        """Claim again after so long, or earlier if that was planned already."""
        if seconds is not None and seconds <= FAR_AWAY:
            self._alarm.set(seconds)

    def _plan_at(self, at: datetime) -> None:
        self._plan(at.timestamp() - self._parts.instants.epoch())

    def _look_for_room(self, lane: int) -> None:
        """After an attempt: claim when there is room for what had to be left in the database."""
        buffer = self._slots.buffer
        if self._starved and buffer.free * 4 >= buffer.size:
            self._claim_everywhere()
        elif self._parts.claimer.wants_more(lane):
            self._wanted.set()

    async def _keep_listening(self) -> None:
        handlers = {DUE_CHANNEL: self._claim_everywhere, WEBHOOKS_CHANNEL: self._changed.set}
        while True:
            beat()
            try:
                await self._parts.listener.listen(handlers)
            except StoreUnavailable:
                await asyncio.sleep(BACK_OFF)

    async def _keep_leases(self) -> None:
        while True:
            await rest(self._parts.claimer.lease / 6)
            try:
                await self._parts.claimer.keep_leases()
            except (StoreUnavailable, Conflict):
                continue

    async def _keep_drawing(self) -> None:
        while True:
            beat()
            if await self._parts.rates.keep_drawing():
                self._crew.wake()

    async def _keep_letting_in(self) -> None:
        """Let in what ingest handed over for webhooks that are not known here yet."""
        handoff = self._parts.handoff
        while True:
            await heed(self._arrived)
            self._arrived.clear()
            rows, handoff.arrivals = handoff.arrivals, []
            with suppress(StoreUnavailable, Conflict):
                await self._parts.claimer.let_in(rows)
            self._crew.wake()

    # --- keeping up -----------------------------------------------------------------------------------------------

    async def _keep_refreshing(self) -> None:
        while True:
            beat()
            self._changed.clear()
            try:
                entries = await self._parts.catalog.refresh()
            except (StoreUnavailable, Conflict):
                await asyncio.sleep(BACK_OFF)
                continue
            for entry in entries:
                self._apply_health(entry)
            self._crew.wake()
            await wait_at_most(self._changed, REFRESH)
            await asyncio.sleep(SOON)

    def _apply_health(self, entry: Entry) -> None:
        """Let a lane run as many attempts as its webhook's health allows now; if none, others may have what waits."""
        if entry.one_shot:
            return
        self._slots.allow(entry.lane, entry.terms.allowance)
        if entry.terms.allowance == 0:
            self._empty_lane(entry)

    def _empty_lane(self, entry: Entry) -> None:
        """Buffered deliveries go back to the queue: their webhook has changed, or may not send."""
        self._parts.claimer.hand_back(self._slots.empty(entry.lane))

    def _written(self, woken: int) -> None:
        if woken:
            self._claim_everywhere()
        self._crew.wake()

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _drain(self, stop: Stop, ending: Collection[asyncio.Task[None]]) -> None:
        """Hand back what has not started, let the rest end within the budget, write everything."""
        parts = self._parts
        self._alarm.clear()
        parts.claimer.hand_back([*self._slots.withdraw(lambda _: True), *parts.handoff.arrivals])
        parts.handoff.arrivals = []
        await self._crew.finish(stop.remaining())
        await self._end(ending)
        parts.claimer.hand_back(self._slots.withdraw(lambda _: True))
        try:
            async with asyncio.timeout(LAST_WRITES):
                await self._write_rest()
        except TimeoutError:
            parts.tell("outcomes_not_recorded", count=parts.recorder.unrecorded)

    async def _end(self, tasks: Collection[asyncio.Task[None]]) -> None:
        """Wait for a claim that is on its way, whose leases may have been committed already."""
        await asyncio.wait(tasks, timeout=LAST_CLAIM)
        for task in tasks:
            task.cancel()

    async def _write_rest(self) -> None:
        """The recorder's own loop writes; this waits until it has, then the health of webhooks goes too."""
        await self._parts.recorder.wait_empty()
        try:
            await self._parts.observations.flush()
        except (StoreUnavailable, Conflict):
            return
