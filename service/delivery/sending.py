"""The tasks that make attempts: as many as are needed, each for one attempt after the other.

Belongs here: starting, parking and ending them. Does not belong here: what an attempt is (``attempting``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from service.delivery.attempting import Attempts
from service.delivery.instants import Monotonic
from service.delivery.ready import ReadyDelivery
from service.delivery.slots import Slots

TASKS_PER_SLOT: Final = 2  # an attempt that looks up an address has a task and no slot


class Crew:
    """Tasks in the caller's task group. A free one waits for ``wake``; one that starts an attempt wakes the next.

    A new task per delivery would cost more than the rest of the bookkeeping.
    """

    def __init__(self, slots: Slots, attempts: Attempts, clock: Monotonic, may_send: Callable[[float], bool]) -> None:
        """``may_send`` says whether an attempt may start at a monotonic instant."""
        self._slots = slots
        self._attempts = attempts
        self._clock = clock
        self._may_send = may_send
        self._woken = 0
        self._free: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._group: asyncio.TaskGroup | None = None
        self._later: asyncio.TimerHandle | None = None
        self.on_done: Callable[[int], object] = lambda _: None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Own tasks from now on in ``group``."""
        self._group = group

    def wake(self) -> None:
        """Something may be ready: let one more task look, unless one for each ready lane is about to."""
        if self._slots.listed <= self._woken:
            return
        self._woken += 1
        while self._free:
            future = self._free.pop()
            if not future.done():
                future.set_result(None)
                return
        if self._group is not None and len(self._tasks) < TASKS_PER_SLOT * self._slots.limit:
            task = self._group.create_task(self._work(), name="attempt")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        else:
            self._woken -= 1

    def _wake_later(self) -> None:
        self._later = None
        self.wake()

    async def finish(self, seconds: float) -> None:
        """Start nothing new; let running attempts end within so many seconds, then cancel the rest."""
        self._group = None
        if self._later is not None:
            self._later.cancel()
        self._woken += len(self._free)
        for future in self._free:
            if not future.done():
                future.set_result(None)
        self._free.clear()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=seconds)
        rest = list(self._tasks)
        for task in rest:
            task.cancel()
        if rest:
            await asyncio.wait(rest)

    async def _work(self) -> None:
        self._woken -= 1
        while (row := await self._next()) is not None:
            await self._attempts.run(row)
            self.on_done(row.lane)

    async def _next(self) -> ReadyDelivery | None:
        """The next delivery that may be attempted; None when there will be none."""
        while self._group is not None:
            now = self._clock.monotonic()
            row = self._slots.take(now) if self._may_send(now) else None
            if row is not None:
                if self._slots.listed and self._slots.in_flight < self._slots.limit:
                    self.wake()
                return row
            if self._later is None and (pause := self._slots.find_pause(now)):
                self._later = asyncio.get_running_loop().call_later(pause, self._wake_later)
            future = asyncio.get_running_loop().create_future()
            self._free.append(future)
            await future
            self._woken -= 1
        return None
