"""Deadlines: who is overdue is expired, a few at a time."""

import asyncio

import pytest

from service.sender.sweep import SLICE, Sweep


class Attempt:
    def __init__(self, sweep, expired, deadline):
        self.deadline = deadline
        self._sweep, self._expired = sweep, expired
        sweep.watched.add(self)

    def expire(self):
        self._sweep.watched.discard(self)
        self._expired.append(self)


@pytest.fixture
async def sweep(monkeypatch):
    monkeypatch.setattr("service.sender.sweep.INTERVAL", 0.005)
    monkeypatch.setattr("service.sender.sweep.PACE", 0.0)
    sweep = Sweep(lambda: 100.0, lambda now: None)
    sweep.start()
    yield sweep
    sweep.stop()


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


async def test_who_is_overdue_is_expired_and_nobody_else(sweep):
    expired = []
    late, early = Attempt(sweep, expired, 99.0), Attempt(sweep, expired, 101.0)
    await until(lambda: expired)
    assert (expired, sweep.watched) == ([late], {early})


async def test_many_that_end_at_once_are_expired_a_few_at_a_time(sweep):
    expired = []
    attempts = [Attempt(sweep, expired, 99.0) for _ in range(20 * SLICE)]
    await until(lambda: expired)
    assert len(expired) == SLICE
    late = Attempt(sweep, expired, 99.0)
    renewed = next(attempt for attempt in attempts if attempt not in expired)
    renewed.deadline = 200.0
    await until(lambda: late in expired)
    assert set(expired) == {*attempts, late} - {renewed}


async def test_a_stop_in_the_middle_is_the_end(sweep):
    expired = []
    for _ in range(20 * SLICE):
        Attempt(sweep, expired, 99.0)
    await until(lambda: expired)
    sweep.stop()
    before = len(expired)
    await asyncio.sleep(0.02)
    assert len(expired) == before
