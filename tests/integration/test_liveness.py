"""Liveness: a loop that hangs is named within its limit; a dependency that is away, or frozen, fails nothing."""

import asyncio
import inspect
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from service.lifecycle import TURNS_WITHIN, Heartbeats, Stop, SystemClock
from service.ports import StoreUnavailable
from service.store.database import ACQUIRE_TIMEOUT, Database
from service.store.deliveries import DeliveryStore
from service.store.leadership import LeaderLock
from service.upkeep.leading import Loop, Upkeep
from tests.support.delivering import Queue, ShiftedClock, Watcher, deliver, until
from tests.support.postgres import migrate
from tests.support.postgres_server import HarmedPostgres
from tests.support.receivers import NO_CONTENT, answering, receive

ENGINE = {"claiming", "surveying", "listening", "leases", "rates", "arrivals", "recording", "observing", "refreshing"}
FASTER = 10  # by which a hurried clock is ahead of the machine's
OVERDUE = TURNS_WITHIN.total_seconds() + 1


class HurriedClock(SystemClock):
    """Ten seconds pass in one: what hangs for the limit hangs for a tenth of it."""

    def monotonic(self) -> float:
        return super().monotonic() * FASTER


class Hanging:
    """A store one of whose methods never comes back once ``hangs`` is set."""

    def __init__(self, store: DeliveryStore, method: str) -> None:
        self._store = store
        self._method = method
        self.hangs = False

    def __getattr__(self, name):
        return self._hang if self.hangs and name == self._method else getattr(self._store, name)

    async def _hang(self, *_):
        await asyncio.Event().wait()


@asynccontextmanager
async def leading(dsn, heartbeats, *loops):
    """Upkeep that leads, and what it tells."""
    watcher, stop = Watcher(), Stop(SystemClock(), timedelta(seconds=1))
    async with asyncio.TaskGroup() as group:
        group.create_task(Upkeep(LeaderLock(dsn), loops, heartbeats, watcher.tell).run(stop))
        await until(lambda: heartbeats._last.keys() >= {loop.name for loop in loops})
        yield watcher
        stop.set()


async def hang_forever():
    await asyncio.Event().wait()


async def idle():
    """A round with nothing to do."""


def test_the_limit_is_twice_the_longest_wait_for_a_database():
    command_timeout = inspect.signature(Database).parameters["command_timeout"].default
    assert TURNS_WITHIN.total_seconds() >= 2 * (2 * command_timeout + 2 * ACQUIRE_TIMEOUT)


async def test_every_loop_of_the_engine_is_watched_and_beats_while_it_waits(database):
    clock = ShiftedClock()
    heartbeats = Heartbeats(clock)
    async with Queue(database), deliver(database, heartbeats=heartbeats) as role:
        await until(role.parts.engine.may_send)
        clock.added = OVERDUE
        assert set(heartbeats.list_silent()) <= ENGINE
        assert len(heartbeats.list_silent()) >= len(ENGINE) - 1  # one may have turned this instant
        await until(lambda: not heartbeats.list_silent())
    assert not heartbeats.list_silent()


@pytest.mark.parametrize(("method", "loop"), [("claim", "claiming"), ("record_accepted", "recording")])
async def test_a_loop_that_hangs_is_named(database, method, loop):
    clock, stores = ShiftedClock(), []
    heartbeats = Heartbeats(clock)

    def wrap(store):
        stores.append(Hanging(store, method))
        return stores[0]

    async with (
        Queue(database) as queue,
        receive(answering(NO_CONTENT)) as receiver,
        deliver(database, wrap=wrap, heartbeats=heartbeats, drain=0.1) as role,
    ):
        await until(role.parts.engine.may_send)
        stores[0].hangs = True
        await queue.deliveries(await queue.webhook(receiver.url("/x")))
        await asyncio.sleep(0.5)
        clock.added = OVERDUE
        await until(lambda: set(heartbeats.list_silent()) == {loop})


async def test_an_upkeep_loop_that_hangs_is_named_and_the_others_are_not(database):
    clock = ShiftedClock()
    heartbeats = Heartbeats(clock)
    loops = Loop("settle", 0.1, hang_forever), Loop("partitions", 3_600.0, idle)
    async with leading(database, heartbeats, *loops):
        clock.added = OVERDUE
        await until(lambda: set(heartbeats.list_silent()) == {"settle"})


async def test_long_work_that_gets_on_is_no_failure(database):
    """A round may take as long as it needs: each statement that ends is a beat."""
    clock = ShiftedClock()
    heartbeats, over = Heartbeats(clock), asyncio.Event()

    async def work_on():
        async with Database(database, size=1) as db, db.session() as session:
            while not over.is_set():
                await session.value("transaction_now")

    async with leading(database, heartbeats, Loop("prune", 60.0, work_on)):
        for _ in range(3):
            clock.added += OVERDUE
            await until(lambda: not heartbeats.list_silent())
        over.set()


async def test_a_database_that_is_away_fails_no_loop(database):
    clock = ShiftedClock()
    heartbeats = Heartbeats(clock)
    nowhere = "postgresql://nobody@127.0.0.1:9/none"

    async def ask():
        raise StoreUnavailable("away")

    async with deliver(nowhere, heartbeats=heartbeats), leading(database, heartbeats, Loop("settle", 0.1, ask)):
        for _ in range(3):
            clock.added += OVERDUE
            await until(lambda: not heartbeats.list_silent())


async def test_a_frozen_database_fails_no_loop(tmp_path):
    """Statements hang up to their timeout, then their cancellation does, and no connection can be made."""
    heartbeats = Heartbeats(HurriedClock())
    async with (
        HarmedPostgres(tmp_path / "data") as server,
        Database(server.dsn, size=2, command_timeout=2.0) as asked,
    ):
        await migrate(server.dsn)

        async def ask():
            async with asked.transaction() as session:
                await session.value("transaction_now")

        async with (
            leading(server.dsn, heartbeats, Loop("settle", 0.1, ask)),
            deliver(server.dsn, heartbeats=heartbeats, command_timeout=2.0),
        ):
            await asyncio.sleep(1)
            server.freeze()
            try:
                for _ in range(2 * int(TURNS_WITHIN.total_seconds()) // FASTER):
                    await asyncio.sleep(1)
                    assert not heartbeats.list_silent()
            finally:
                server.thaw()
