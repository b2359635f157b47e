"""Outcomes are written in groups, kept while they cannot be, and never lost to one that cannot be written."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from service.delivery.instants import DatabaseClock
from service.delivery.recording import ENOUGH, GATHER, UNRECORDED_LIMIT, Recorded, Recorder
from service.domain.attempts import Flag, Outcome, OutcomeClass
from service.ports import Conflict, StoreUnavailable

OK = Outcome(OutcomeClass.DELIVERED, 204, flags=frozenset({Flag.SURPLUS_BYTES, Flag.BODY_CUT}), duration=0.25)


class Store:
    def __init__(self) -> None:
        self.accepted = []
        self.groups = []
        self.calls = 0
        self.trouble = []
        self.poison = None

    async def record_accepted(self, rows):
        self.calls += 1
        if self.trouble:
            raise self.trouble.pop(0)
        if any(row[0] == self.poison for row in rows):
            raise RuntimeError("cannot be written")
        self.accepted += rows
        return 0

    async def record_undelivered(self, rows):
        self.groups.append(len(rows))
        return Recorded([])


class Watch:
    def __init__(self) -> None:
        self.finished, self.faults = 0, 0

    def deliveries_finished(self, state, count=1):
        self.finished += count

    def own_fault(self, kind):
        self.faults += 1


def make(store):
    watch = Watch()
    clock = SimpleNamespace(monotonic=lambda: 0.0)
    return Recorder(store, DatabaseClock(clock), watch, lambda *_, **__: None), watch


def accept(recorder, number):
    row = SimpleNamespace(delivery_id=number, token=1, number=1, work=None)
    recorder.accept(row, "http://o", OK, 1.5, stale=False)


def decide(recorder, number):
    decision = SimpleNamespace(finished=False, next_attempt_at=None)
    recorder.decide(SimpleNamespace(row=SimpleNamespace(delivery_id=number, work=None), decision=decision))


@asynccontextmanager
async def running(recorder):
    async with asyncio.TaskGroup() as group:
        task = group.create_task(recorder.run())
        yield
        task.cancel()


async def test_a_group_is_written_in_the_order_of_ids():
    store = Store()
    recorder, watch = make(store)
    for number in (3, 1, 2):
        accept(recorder, number)
    async with running(recorder):
        await recorder.wait_empty()
    assert [row[0] for row in store.accepted] == [1, 2, 3]
    assert store.accepted[0][3:] == (1.5, 250, 204, "body_cut,surplus_bytes", "http://o", None, False)
    assert (store.calls, watch.finished) == (1, 3)


async def test_trouble_keeps_outcomes_and_closes_the_gate():
    store = Store()
    store.trouble = [StoreUnavailable("a"), Conflict("b"), StoreUnavailable("c")]
    recorder, _ = make(store)
    accept(recorder, 1)
    async with running(recorder):
        while not recorder.away:
            await asyncio.sleep(0)
        assert (recorder.open, recorder.unrecorded) == (False, 1)
        await recorder.wait_empty()
        await asyncio.sleep(0)
    assert recorder.open
    assert store.calls == 4


async def test_one_that_cannot_be_written_keeps_nobody_else_back():
    store = Store()
    store.poison = 1
    recorder, watch = make(store)
    for number in (1, 2, 3):
        accept(recorder, number)
    async with running(recorder):
        while len(store.accepted) < 2:
            await asyncio.sleep(0.01)
        assert recorder.unrecorded == 1
        store.poison = None
        await recorder.wait_empty()
    assert watch.faults >= 2


def test_a_thousand_unrecorded_outcomes_close_the_gate():
    recorder, _ = make(Store())
    for number in range(UNRECORDED_LIMIT):
        assert recorder.open
        accept(recorder, number)
    assert not recorder.open


@pytest.mark.parametrize(("count", "groups"), [(2, [2]), (ENOUGH + 2, [ENOUGH, 2])])
async def test_decisions_wait_for_others_unless_there_are_many(count, groups):
    store = Store()
    recorder, _ = make(store)
    async with running(recorder):
        for number in range(count):
            if number in (1, ENOUGH):
                await asyncio.sleep(2 * GATHER)
            decide(recorder, number)
        accept(recorder, 1_000)
        while not store.accepted:
            await asyncio.sleep(0)
        assert store.groups == groups[:-1], "what was accepted waits for nothing"
        await recorder.wait_empty()
    assert store.groups == groups
