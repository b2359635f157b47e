"""Trouble with the database is an outage, unless it is a mistake of ours; and neither hides that a task was canceled."""

import asyncio
from contextlib import suppress
from datetime import timedelta

import asyncpg
import pytest

from service.lifecycle import Heartbeats, Stop, SystemClock
from service.ports import StoreUnavailable
from service.store.database import Database
from service.upkeep.leading import Loop, Upkeep


@pytest.fixture
async def store(database):
    async with Database(database, size=2) as opened:
        yield opened


@pytest.fixture
async def cut(database):
    """End a session's connection as an administrator would."""
    connection = await asyncpg.connect(database)

    async def end(session):
        await connection.fetchval("SELECT pg_terminate_backend($1, 5000)", session.connection.get_server_pid())

    yield end
    await connection.close()


class Meeting:
    """A transaction whose connection ends when it is canceled."""

    def __init__(self, store, cut):
        self._store, self._cut = store, cut
        self.entered, self.left = asyncio.Event(), asyncio.Event()

    async def run_once(self):
        async with self._store.transaction() as session:
            self.entered.set()
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                await self._cut(session)
                raise
            finally:
                self.left.set()


async def test_a_rollback_that_fails_does_not_hide_that_the_task_was_canceled(store, cut):
    meeting = Meeting(store, cut)
    task = asyncio.ensure_future(meeting.run_once())
    await meeting.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_mistake_in_a_canceled_transaction_does_not_hide_that_it_was_canceled(store):
    entered = asyncio.Event()

    async def run():
        async with store.transaction() as session:
            entered.set()
            try:
                await asyncio.Event().wait()
            finally:
                await session.value("transaction_now", 1)

    task = asyncio.ensure_future(run())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_end_without_a_cancellation_is_trouble_of_the_database(store, cut):
    with pytest.raises(StoreUnavailable):
        async with store.transaction() as session:
            await cut(session)


async def test_what_is_asked_of_a_connection_that_has_ended_is_trouble_of_the_database(store, cut):
    async def ask_again():
        async with store.session() as session:
            await cut(session)
            with suppress(asyncpg.PostgresConnectionError):
                await session.value("transaction_now")
            await session.value("transaction_now")

    with pytest.raises(StoreUnavailable, match="InterfaceError"):
        await ask_again()


async def test_a_pool_that_is_closed_is_trouble_of_the_database(database):
    async with Database(database, size=1) as store:
        pass
    with pytest.raises(StoreUnavailable):
        async with store.session():
            pass


@pytest.mark.parametrize("lend", [Database.session, Database.transaction])
async def test_a_call_that_no_connection_takes_is_a_mistake_and_no_outage(store, lend):
    with pytest.raises(RuntimeError, match="0 arguments"):
        async with lend(store) as session:
            await session.value("transaction_now", 1)
    assert await store.answers()


async def test_trouble_while_a_canceled_task_cleans_up_is_trouble_of_the_database(store, cut):
    told = []

    async def clean_up():
        try:
            await asyncio.Event().wait()
        finally:
            try:
                async with store.transaction() as session:
                    await cut(session)
            except StoreUnavailable:
                told.append("away")

    task = asyncio.ensure_future(clean_up())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert told == ["away"]


async def test_a_leader_that_loses_its_lock_in_an_outage_ends_its_loops_and_tries_again(store, cut):
    meeting, leading = Meeting(store, cut), []

    class Lock:
        async def acquire(self):
            return True

        async def prove(self):
            await meeting.entered.wait()
            raise StoreUnavailable("lost")

        def release(self):
            return None

    clock, again = SystemClock(), asyncio.Event()
    stop = Stop(clock, timedelta(seconds=5))

    def on_lead(leads):
        leading.append(leads)
        if leading == [True, False, True]:
            again.set()

    loop = Loop("meeting", 60.0, meeting.run_once)
    upkeep = Upkeep(Lock(), [loop], Heartbeats(clock), lambda *_, **__: None, on_lead)
    task = asyncio.ensure_future(upkeep.run(stop))
    async with asyncio.timeout(20):
        await again.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
