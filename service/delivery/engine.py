"""The deliver role as one worker with named loops.

Belongs here: which loops run side by side, what they tell each other, and the order of a clean stop. Does not belong
here: what each loop does; see its module, and ``intake`` for those that bring in work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from service.delivery.attempting import Attempts
from service.delivery.catalog import Catalog
from service.delivery.entries import Entry
from service.delivery.instants import Monotonic
from service.delivery.intake import CLAIMING, Intake, Loop
from service.delivery.observing import Observations
from service.delivery.rates import Rates
from service.delivery.recording import Recorder
from service.delivery.sending import Crew
from service.delivery.slots import Slots
from service.lifecycle import Heartbeats, Stop, beat, wait_at_most
from service.ports import Conflict, StoreUnavailable, Tell

DUE_CHANNEL: Final = "webhookd_due"
WEBHOOKS_CHANNEL: Final = "webhookd_webhooks"
REFRESH: Final = 1.0  # seconds between refreshes of the catalog without a notification
SOON: Final = 0.02  # seconds between two refreshes at the least
BACK_OFF: Final = 0.25  # seconds, after trouble
LAST_WRITES: Final = 2.5  # seconds that a stop leaves for writing outcomes
LAST_CLAIM: Final = 1.0  # seconds that a stop waits for a claim under way


class Listener(Protocol):
    """Hears notifications on a connection of its own, which also counts this process as a live one."""

    async def listen(self, handlers: Mapping[str, Callable[[], object]]) -> None:
        """Call the handler of a channel at each notification, until the connection ends: StoreUnavailable."""


@dataclass(frozen=True, slots=True)
class EngineParts:
    """What the engine runs, built by the composition root."""

    clock: Monotonic
    catalog: Catalog
    slots: Slots
    intake: Intake
    attempts: Attempts
    recorder: Recorder
    observations: Observations
    rates: Rates
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
        self._changed = asyncio.Event()
        self._running = False
        self._connect()

    def may_send(self) -> bool:
        """Whether attempts may start now."""
        return self._may_start(self._parts.clock.monotonic())

    def _may_start(self, now: float) -> bool:
        """Whether we run, the catalog is fresh, no fault of our own was just met, and outcomes can be written."""
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
            self._parts.intake.close()
            for task in ending:
                if not (task.get_name() == CLAIMING and self._parts.intake.claimer.asking):
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
            **self._parts.intake.list_loops(),
            "listening": self._keep_listening,
            "rates": self._keep_drawing,
        }

    def _connect(self) -> None:
        parts, crew, intake = self._parts, self._crew, self._parts.intake
        crew.on_done = intake.look_for_room
        intake.on_ready = intake.handoff.on_ready = crew.wake
        intake.may_send = intake.handoff.may_send = parts.attempts.may_send = self.may_send
        parts.recorder.on_written = self._written
        parts.recorder.on_planned = intake.plan_at
        parts.observations.on_health = self._apply_health
        parts.catalog.on_replaced = self._empty_lanes

    # --- keeping up -----------------------------------------------------------------------------------------------

    async def _keep_listening(self) -> None:
        handlers = {DUE_CHANNEL: self._parts.intake.claim_everywhere, WEBHOOKS_CHANNEL: self._changed.set}
        while True:
            beat()
            try:
                await self._parts.listener.listen(handlers)
            except StoreUnavailable:
                await asyncio.sleep(BACK_OFF)

    async def _keep_drawing(self) -> None:
        while True:
            beat()
            if await self._parts.rates.keep_drawing():
                self._crew.wake()

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
        """Let a lane run as many attempts as its webhook's health allows now; if none, hand back what waits in it."""
        self._slots.allow(entry.webhook_key, entry.terms.allowance)
        if entry.terms.allowance == 0:
            self._parts.intake.claimer.hand_back(self._slots.empty(entry.webhook_key))

    def _empty_lanes(self, entry: Entry) -> None:
        """Hand back the buffered deliveries of a webhook that has changed."""
        for lane in {entry.lane, entry.webhook_key}:
            self._parts.intake.claimer.hand_back(self._slots.empty(lane))

    def _written(self, woken: int) -> None:
        if woken:
            self._parts.intake.claim_everywhere()
        self._crew.wake()

    # --- stopping -------------------------------------------------------------------------------------------------

    async def _drain(self, stop: Stop, ending: Collection[asyncio.Task[None]]) -> None:
        """Hand back what has not started, let the rest end within the budget, write everything."""
        parts = self._parts
        parts.intake.hand_back()
        await self._crew.finish(stop.remaining())
        await self._end(ending)
        parts.intake.hand_back()
        try:
            async with asyncio.timeout(LAST_WRITES):
                await self._write_rest()
        except TimeoutError:
            parts.tell("outcomes_not_recorded", count=parts.recorder.unrecorded)

    async def _end(self, tasks: Collection[asyncio.Task[None]]) -> None:
        """Wait a moment for a claim under way, whose leases may be committed already; then end all loops."""
        await asyncio.wait(tasks, timeout=LAST_CLAIM)
        for task in tasks:
            task.cancel()

    async def _write_rest(self) -> None:
        """Wait until the recorder's loop has written everything; then write the health of webhooks."""
        await self._parts.recorder.wait_empty()
        try:
            await self._parts.observations.flush()
        except (StoreUnavailable, Conflict):
            return
