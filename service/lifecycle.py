"""How the process lives: clock and chance, named workers under one supervisor, signals, heartbeats, the event loop.

Belongs here: starting, watching and stopping what the composition root hands over. This is the one place of wall clock
and randomness. Does not belong here: what any worker does, and the order parts are entered in (``service.app``).
"""

from __future__ import annotations

import asyncio
import gc
import math
import resource
import secrets
import signal
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Protocol, TypeVar

import uvloop

_GC_THRESHOLDS = (50_000, 50, 100)
_SIGNALS = (signal.SIGTERM, signal.SIGINT)
MANY_DESCRIPTORS = 1_000_000  # what "unlimited" is taken for
_TO_LET_GO = 3.0  # seconds after the drain budget in which workers hand back what they could not end

T = TypeVar("T")

# In which a loop has to turn, or a statement of its to end. Against a frozen database the longest wait is 80 s: for a
# connection 10, for the statement 30, for its cancellation 30, for handing the connection back 10.
TURNS_WITHIN: Final = timedelta(minutes=3)
BEAT_EVERY: Final = 1.0

_BEAT: ContextVar[Callable[[], None] | None] = ContextVar("beat", default=None)


class Clock(Protocol):
    """Where instants and durations come from."""

    def monotonic(self) -> float:
        """Seconds since some fixed moment; never steps. For durations."""

    def now(self) -> datetime:
        """The wall clock, aware, in UTC. For instants that are stored or shown."""


class SystemClock:
    """The machine's clocks."""

    def monotonic(self) -> float:
        return time.monotonic()

    def now(self) -> datetime:
        return datetime.now(UTC)  # noqa: TID251 - the one place that reads the wall clock


class Rng(Protocol):
    """Where chance comes from."""

    def uniform(self) -> float:
        """A number in [0, 1), for jitter and sampling."""

    def token(self, size: int) -> bytes:
        """``size`` bytes that nobody can guess, for keys, secrets and ids."""


class SystemRng:
    """The operating system's generator."""

    def __init__(self) -> None:
        self.uniform = secrets.SystemRandom().random

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)


class Stop(asyncio.Event):
    """The wish to end. Workers look at ``is_set``, wait with ``wait`` or ``pause``, and spend ``remaining``."""

    def __init__(self, clock: Clock, drain: timedelta) -> None:
        """``drain`` is how long work under way may take to end after the first ``set``."""
        super().__init__()
        self.forced = False
        self.on_force: Callable[[], None] = lambda: None
        self._clock = clock
        self._drain = drain.total_seconds()
        self._deadline = math.inf

    def set(self) -> None:
        """Ask everyone to end; the drain budget runs from the first call."""
        if not self.is_set():
            self._deadline = self._clock.monotonic() + self._drain
        super().set()

    def force(self) -> None:
        """End at once: workers are cancelled."""
        self.forced = True
        self.set()
        self.on_force()

    def remaining(self) -> float:
        """Seconds of the drain budget that are left; infinite while nobody asked to stop."""
        return max(0.0, self._deadline - self._clock.monotonic())

    async def pause(self, seconds: float) -> bool:
        """Wait so long, or until asked to stop. True when asked."""
        await wait_at_most(self, seconds)
        return self.is_set()


class Worker(Protocol):
    """A named loop."""

    @property
    def name(self) -> str:
        """One word for logs, unique in the process."""

    async def run(self, stop: Stop) -> None:
        """Work until ``stop`` is set, then end cleanly within ``stop.remaining()``, or soon after it.

        An exception ends the process, and so does returning before ``stop`` is set.
        """


class WorkerFailed(Exception):
    """A worker raised, or returned unasked. What it raised is the cause."""

    def __init__(self, name: str) -> None:
        super().__init__(f"worker {name} failed")
        self.name = name


class Supervisor:
    """Runs workers in one task group until the stop, or until one of them fails."""

    def __init__(self, stop: Stop, tell: Callable[..., object]) -> None:
        """``tell(event, **fields)`` takes what is worth a log line."""
        self._stop = stop
        self._tell = tell
        self._failed: WorkerFailed | None = None

    async def run(self, workers: Sequence[Worker]) -> None:
        """Until every worker has ended.

        After the stop, workers have the drain budget and three seconds to hand back the rest; who is left then, and
        everyone at ``force``, is cancelled.

        Raises:
            WorkerFailed: the first that failed; the others were stopped in the ordinary way before.
        """
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._watch(worker), name=worker.name) for worker in workers]
            self._stop.on_force = lambda: self._cancel(tasks)
            await self._outlast(tasks)
        if self._failed is not None:
            raise self._failed

    async def _watch(self, worker: Worker) -> None:
        try:
            await worker.run(self._stop)
        except Exception as error:  # noqa: BLE001 - whatever it is, the others are closed before it ends the process
            self._fail(worker.name, error)
        else:
            if not self._stop.is_set():
                self._fail(worker.name, None)

    def _fail(self, name: str, cause: Exception | None) -> None:
        self._tell("worker_failed", worker=name, exc_info=cause)
        if self._failed is None:
            self._failed = WorkerFailed(name)
            self._failed.__cause__ = cause
        self._stop.set()

    async def _outlast(self, tasks: list[asyncio.Task[None]]) -> None:
        if not tasks:
            return
        await self._stop.wait()
        await asyncio.wait(tasks, timeout=self._stop.remaining() + _TO_LET_GO)
        self._cancel(tasks)

    def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        left = [task for task in tasks if not task.done()]
        if left:
            self._tell("workers_cancelled", workers=[task.get_name() for task in left], forced=self._stop.forced)
        for task in left:
            task.cancel()


@contextmanager
def stop_on_signals(stop: Stop) -> Iterator[None]:
    """SIGTERM or SIGINT: the first asks to stop, the second forces, a third meets the system's default."""
    loop = asyncio.get_running_loop()

    def release() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def received() -> None:
        if not stop.is_set():
            stop.set()
            return
        release()
        stop.force()

    for number in _SIGNALS:
        loop.add_signal_handler(number, received)
    try:
        yield
    finally:
        release()


class Heartbeats:
    """Which named loops still turn. Read by ``/livez``; knows nothing of dependencies."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: dict[str, float] = {}
        self._bounds: dict[str, float] = {}

    @contextmanager
    def watch(self, name: str, bound: timedelta) -> Iterator[Callable[[], None]]:
        """Inside, the loop ``name`` must call what is yielded at least every ``bound``."""

        def beat() -> None:
            self._last[name] = self._clock.monotonic()

        self._bounds[name] = bound.total_seconds()
        beat()
        try:
            yield beat
        finally:
            del self._bounds[name], self._last[name]

    @contextmanager
    def turning(self, name: str) -> Iterator[None]:
        """Inside, the loop ``name`` turns: each ``beat()`` that it comes by, however deep, counts for it."""
        with self.watch(name, TURNS_WITHIN) as mine:
            outer = _BEAT.set(mine)
            try:
                yield
            finally:
                _BEAT.reset(outer)

    def list_silent(self) -> dict[str, float]:
        """Loops over their bound, with the seconds since their last beat."""
        now = self._clock.monotonic()
        return {name: now - self._last[name] for name, bound in self._bounds.items() if now - self._last[name] > bound}


def beat() -> None:
    """The loop that this runs in still gets on. Nothing where none is watched."""
    mine = _BEAT.get()
    if mine is not None:
        mine()


async def rest(seconds: float) -> None:
    """Sleep; a loop that rests still beats."""
    left = seconds
    while left > 0:
        beat()
        await asyncio.sleep(min(left, BEAT_EVERY))
        left -= BEAT_EVERY
    beat()


async def wait_at_most(event: asyncio.Event, seconds: float) -> None:
    """Wait for an event, or so long; a loop that waits still beats."""
    left = seconds
    beat()
    while left > 0 and not event.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(min(left, BEAT_EVERY)):
                await event.wait()
        beat()
        left -= BEAT_EVERY


async def heed(event: asyncio.Event) -> None:
    """Wait for an event, however long; a loop that waits for work still beats."""
    while not event.is_set():
        beat()
        await wait_at_most(event, BEAT_EVERY)
    beat()


class LoopLagProbe:
    """The worker that measures how late the event loop runs what is due; reports the worst of the last minute."""

    name = "loop_lag"

    def __init__(self, clock: Clock, report: Callable[[float], object], every: float = 0.25, window: int = 240) -> None:
        """``report(seconds)`` is called after each of the ``window`` looks that the worst is taken from."""
        self._clock = clock
        self._report = report
        self._every = every
        self._lags: deque[float] = deque(maxlen=window)

    async def run(self, stop: Stop) -> None:
        """Look four times a second until the stop."""
        asked = self._clock.monotonic()
        while not await stop.pause(self._every):
            self.measure(self._clock.monotonic() - asked)
            asked = self._clock.monotonic()

    def measure(self, waited: float) -> None:
        """Take in that a wait of ``every`` seconds took ``waited``."""
        self._lags.append(max(0.0, waited - self._every))
        self._report(max(self._lags))


def tune_gc() -> None:
    """Called once everything is built: what is alive stays so, hence it is not looked at again; collect seldom.

    Chapter 5, Process: 14 to 21 % less CPU, worst loop lag 370 → 27 ms at 10,000 in flight.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def raise_descriptor_limit() -> int:
    """Raise this process's limit of open files to what it may be raised to; return the limit in force."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else MANY_DESCRIPTORS


def run_on_uvloop(main: Coroutine[Any, Any, T]) -> T:
    """``main`` on a new uvloop, closed afterwards; what it returns."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)
