"""Starting, watching, stopping: with a clock that stands still and events instead of waits."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
from datetime import UTC, timedelta

import pytest

from service import lifecycle
from service.lifecycle import (
    Heartbeats,
    LoopLagProbe,
    Stop,
    Supervisor,
    SystemClock,
    SystemRng,
    WorkerFailed,
    run_on_uvloop,
    stop_on_signals,
    tune_gc,
)


class StillClock:
    """A clock that moves when told."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def monotonic(self) -> float:
        return self.seconds

    def now(self):
        raise AssertionError("nobody here asks for the time of day")


class Patient:
    """A worker that ends when asked, and tells what it saw."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.started = asyncio.Event()
        self.ended = ""

    async def run(self, stop: Stop) -> None:
        self.started.set()
        try:
            await stop.wait()
            self.ended = "asked"
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise


class Stubborn(Patient):
    """A worker that does not look at the stop."""

    async def run(self, stop: Stop) -> None:
        self.started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended = "cancelled"
            raise


class Failing(Patient):
    async def run(self, stop: Stop) -> None:
        raise ValueError("boom")


class Early(Patient):
    async def run(self, stop: Stop) -> None:
        return


@pytest.fixture
def stop() -> Stop:
    return Stop(StillClock(), timedelta(0))


@pytest.fixture
def told() -> list:
    return []


@pytest.fixture
def supervisor(stop, told, monkeypatch) -> Supervisor:
    monkeypatch.setattr(lifecycle, "_TO_LET_GO", 0.0)
    return Supervisor(stop, lambda event, **fields: told.append((event, fields)))


async def running(supervisor: Supervisor, workers: list, meanwhile) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(supervisor.run(workers))
        for worker in workers:
            await worker.started.wait()
        meanwhile()


async def test_workers_end_when_asked(supervisor, stop, told, monkeypatch):
    monkeypatch.setattr(lifecycle, "_TO_LET_GO", 60.0)
    workers = [Patient("a"), Patient("b")]
    await running(supervisor, workers, stop.set)
    assert [worker.ended for worker in workers] == ["asked", "asked"]
    assert not told


async def test_without_workers_there_is_nothing_to_wait_for(supervisor):
    await asyncio.wait_for(supervisor.run([]), 60)


@pytest.mark.parametrize(("kind", "cause"), [(Failing, ValueError), (Early, type(None))])
async def test_a_worker_that_fails_or_leaves_ends_all_after_closing_the_others(
    supervisor, stop, told, monkeypatch, kind, cause
):
    monkeypatch.setattr(lifecycle, "_TO_LET_GO", 60.0)
    healthy = Patient("healthy")
    with pytest.raises(WorkerFailed, match="worker bad failed") as failed:
        await asyncio.wait_for(supervisor.run([healthy, kind("bad")]), 60)
    assert isinstance(failed.value.__cause__, cause)
    assert failed.value.name == "bad"
    assert healthy.ended == "asked"
    assert stop.is_set()
    assert [(event, fields["worker"]) for event, fields in told] == [("worker_failed", "bad")]


async def test_the_first_failure_is_the_one_that_is_told(supervisor):
    with pytest.raises(WorkerFailed, match="first"):
        await asyncio.wait_for(supervisor.run([Failing("first"), Failing("second")]), 60)


async def test_the_drain_deadline_cancels_who_is_left(supervisor, stop, told):
    worker = Stubborn("stuck")
    await running(supervisor, [worker], stop.set)
    assert worker.ended == "cancelled"
    assert told == [("workers_cancelled", {"workers": ["stuck"], "forced": False})]


async def test_force_cancels_at_once(told):
    stop = Stop(StillClock(), timedelta(hours=1))
    worker = Stubborn("stuck")
    await running(Supervisor(stop, lambda event, **fields: told.append((event, fields))), [worker], stop.force)
    assert worker.ended == "cancelled"
    assert told == [("workers_cancelled", {"workers": ["stuck"], "forced": True})]


async def test_force_without_workers():
    stop = Stop(StillClock(), timedelta(0))
    stop.force()
    assert stop.forced
    assert stop.is_set()


def test_the_drain_budget_runs_from_the_first_call():
    clock = StillClock()
    stop = Stop(clock, timedelta(seconds=25))
    assert stop.remaining() == float("inf")
    stop.set()
    clock.seconds += 10
    stop.set()
    assert stop.remaining() == 15
    clock.seconds += 100
    assert stop.remaining() == 0


async def test_a_pause_ends_with_its_time_or_with_the_stop(stop):
    assert await stop.pause(0) is False
    stop.set()
    assert await stop.pause(3600) is True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_two_signals(stop, number):
    forced = asyncio.Event()
    stop.on_force = forced.set
    with stop_on_signals(stop):
        os.kill(os.getpid(), number)
        await asyncio.wait_for(stop.wait(), 60)
        assert not stop.forced
        os.kill(os.getpid(), number)
        await asyncio.wait_for(forced.wait(), 60)
    assert stop.forced
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_heartbeats_tell_who_is_silent():
    clock = StillClock()
    heartbeats = Heartbeats(clock)
    with heartbeats.watch("claim", timedelta(seconds=30)) as beat, heartbeats.watch("record", timedelta(seconds=60)):
        clock.seconds += 30
        assert heartbeats.list_silent() == {}
        clock.seconds += 1
        assert heartbeats.list_silent() == {"claim": 31.0}
        beat()
        assert heartbeats.list_silent() == {}
        clock.seconds += 100
        assert heartbeats.list_silent() == {"claim": 100.0, "record": 131.0}
    assert heartbeats.list_silent() == {}


def test_the_lag_probe_reports_the_worst_of_its_window():
    reports: list[float] = []
    probe = LoopLagProbe(StillClock(), reports.append, every=0.25, window=2)
    for waited in (0.25, 0.35, 0.24, 0.25):
        probe.measure(waited)
    assert [round(report, 3) for report in reports] == [0.0, 0.1, 0.1, 0.0]


async def test_the_lag_probe_looks_until_the_stop(stop):
    reports: list[float] = []

    def report(lag: float) -> None:
        reports.append(lag)
        if len(reports) == 3:
            stop.set()

    await asyncio.wait_for(LoopLagProbe(StillClock(), report, every=0).run(stop), 60)
    assert reports == [0.0, 0.0, 0.0]


def test_the_machines_clock_and_chance():
    clock, rng = SystemClock(), SystemRng()
    assert clock.now().tzinfo is UTC
    assert clock.monotonic() <= clock.monotonic()
    assert 0 <= rng.uniform() < 1
    assert len(rng.token(24)) == 24
    assert rng.token(24) != rng.token(24)


def test_the_garbage_collector_is_told_to_take_it_easy():
    before = gc.get_threshold()
    try:
        tune_gc()
        assert gc.get_freeze_count() > 0
        assert gc.get_threshold()[0] >= 10_000
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


def test_the_runner_uses_uvloop():
    async def main() -> str:
        return type(asyncio.get_running_loop()).__module__

    assert run_on_uvloop(main()).startswith("uvloop")


def test_signals_reach_a_uvloop_too():
    async def main() -> bool:
        stop = Stop(SystemClock(), timedelta(0))
        with stop_on_signals(stop):
            for asked in (stop.is_set, lambda: stop.forced):
                os.kill(os.getpid(), signal.SIGTERM)
                async with asyncio.timeout(60):
                    while not asked():
                        await asyncio.sleep(0)
        return stop.forced

    assert run_on_uvloop(main())
