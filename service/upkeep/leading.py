"""One leader at a time runs the named loops; another takes over within five seconds.

Belongs here: the election and the loop runner. Does not belong here: what a loop does; each has its module.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from service.lifecycle import Heartbeats, Stop, beat, rest
from service.ports import Conflict, StoreUnavailable, Tell

TRY_EVERY: Final = 1.0
PROVE_EVERY: Final = 1.0


class LeadLock(Protocol):
    """What only one process can hold. Each method but the last may raise StoreUnavailable; then it is not held."""

    async def acquire(self) -> bool:
        """Take it if it is free."""

    async def prove(self) -> None:
        """Keep it: to be called every second or so."""

    def release(self) -> None:
        """Let it go."""


@dataclass(frozen=True, slots=True)
class Loop:
    """A named loop: ``run_once`` every ``every`` seconds, the first time at once.

    ``run_once`` may raise StoreUnavailable or Conflict, which cost that round only; anything else ends the process.
    Two processes may run the same loop for a moment, when leadership moves.
    """

    name: str
    every: float
    run_once: Callable[[], Awaitable[object]]


class Upkeep:
    """The worker that leads when it can. ``on_lead(bool)`` tells when it starts and ceases to."""

    name = "upkeep"

    def __init__(
        self,
        lock: LeadLock,
        loops: Sequence[Loop],
        heartbeats: Heartbeats,
        tell: Tell,
        on_lead: Callable[[bool], object] = lambda _: None,
    ) -> None:
        self._lock = lock
        self._loops = loops
        self._heartbeats = heartbeats
        self._tell = tell
        self._on_lead = on_lead

    async def run(self, stop: Stop) -> None:
        """Try to lead, and lead, until the stop."""
        try:
            with self._heartbeats.turning(self.name):
                await self._keep_trying(stop)
        finally:
            self._lock.release()

    async def _keep_trying(self, stop: Stop) -> None:
        while not stop.is_set():
            beat()
            if await self._try():
                await self._lead(stop)
            else:
                await stop.pause(TRY_EVERY)

    async def _try(self) -> bool:
        try:
            return await self._lock.acquire()
        except StoreUnavailable:
            return False

    async def _lead(self, stop: Stop) -> None:
        self._tell("leading")
        self._on_lead(True)
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._keep_running(loop), name=loop.name) for loop in self._loops]
                await self._keep_proving(stop)
                for task in tasks:
                    task.cancel()
        finally:
            self._on_lead(False)
            self._lock.release()
            self._tell("not_leading")

    async def _keep_proving(self, stop: Stop) -> None:
        """Until the stop, or until the lock is lost."""
        while not await stop.pause(PROVE_EVERY):
            beat()
            try:
                await self._lock.prove()
            except StoreUnavailable:
                return

    async def _keep_running(self, loop: Loop) -> None:
        with self._heartbeats.turning(loop.name):
            while True:
                try:
                    await loop.run_once()
                except (StoreUnavailable, Conflict) as trouble:
                    kind = type(trouble).__name__
                    self._tell("upkeep_round_failed", loop=loop.name, trouble=kind, reason=str(trouble))
                await rest(loop.every)
