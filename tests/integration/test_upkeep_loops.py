"""One leader runs the loops; partitions are made ahead and dropped when their time is over."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from annotated_types import Ge

from service.config.fields import Retention
from service.lifecycle import Heartbeats, Stop, SystemClock
from service.ports import StoreUnavailable
from service.store.database import Database
from service.store.leadership import LEADER_LOCK, LeaderLock
from service.store.listening import PROCESS_LOCK
from service.store.partitions import MAKING_LOCK, PARENTS, PERIOD, Partitions, _make, list_periods
from service.upkeep.leading import Loop, Upkeep
from service.upkeep.partitions import Keeping, PartitionUpkeep
from tests.support.delivering import Queue, Watcher, until


def make_stop() -> Stop:
    return Stop(SystemClock(), timedelta(seconds=1))


async def test_one_leads_and_another_takes_over(database):
    rounds: list[str] = []
    watcher = Watcher()

    def build(name):
        async def run_once():
            rounds.append(name)

        return Upkeep(LeaderLock(database), [Loop("test", 0.02, run_once)], Heartbeats(SystemClock()), watcher.tell)

    first, second = make_stop(), make_stop()
    async with asyncio.TaskGroup() as group:
        one = group.create_task(build("one").run(first))
        await until(lambda: len(rounds) > 2)
        two = group.create_task(build("two").run(second))
        await asyncio.sleep(0.2)
        assert set(rounds) == {"one"}
        first.set()
        await one
        await until(lambda: "two" in rounds)
        second.set()
        await two


async def test_a_leader_whose_session_is_cut_steps_down_and_tries_again(database):
    told: list[bool] = []
    stop = make_stop()

    async def run_once():
        raise StoreUnavailable("test")

    watcher = Watcher()
    upkeep = Upkeep(
        LeaderLock(database), [Loop("test", 0.02, run_once)], Heartbeats(SystemClock()), watcher.tell, told.append
    )
    async with Queue(database) as queue, asyncio.TaskGroup() as group:
        task = group.create_task(upkeep.run(stop))
        await until(lambda: told == [True])
        await queue.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'webhookd leader'"
        )
        await until(lambda: told == [True, False, True])
        stop.set()
        await task
    assert told[-1] is False
    assert "upkeep_round_failed" in {name for name, _ in watcher.events}


async def test_a_silent_leader_loses_the_lock(database):
    frozen, other = LeaderLock(database), LeaderLock(database)
    assert await frozen.acquire()
    assert not await other.acquire()
    async with Queue(database) as queue:
        await queue.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'webhookd leader' "
            "AND pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted)"
        )
    assert await other.acquire()
    with pytest.raises(StoreUnavailable):
        await frozen.prove()
    other.release()


async def test_a_bug_in_a_loop_ends_the_worker(database):
    async def run_once():
        raise RuntimeError("bug")

    upkeep = Upkeep(LeaderLock(database), [Loop("test", 1.0, run_once)], Heartbeats(SystemClock()), Watcher().tell)
    with pytest.raises(ExceptionGroup):
        await upkeep.run(make_stop())


async def test_partitions_are_made_three_periods_ahead_once(new_database):
    dsn = await new_database()
    async with Database(dsn) as db:
        partitions = Partitions(db)
        await partitions.make_ahead()
        assert await partitions.make_ahead() == 0
        assert await partitions.count_ahead() == 3


async def test_several_make_partitions_at_the_same_moment(new_database):
    dsn = await new_database()
    async with Database(dsn) as db:
        async with db.transaction() as session:
            for row in await session.fetch("partitions_list", "attempts"):
                await session.connection.execute(f"DROP TABLE {row['name']}")
                await session.execute("partitions_forget", row["name"])
        made = await asyncio.gather(*(Partitions(db).make_ahead() for _ in range(6)))
        assert sorted(made)[:5] == [0] * 5 and max(made) >= 4


async def test_partitions_are_made_while_others_lead_and_deliver(database):
    async with Database(database) as db, db.session() as session:
        await session.find("leader_try", *LEADER_LOCK)
        await session.execute("processes_join", *PROCESS_LOCK)
        await Partitions(db).make_ahead()
        await session.connection.execute("SELECT pg_advisory_unlock_all()")
    assert len({LEADER_LOCK, PROCESS_LOCK, MAKING_LOCK}) == 3


def test_periods_are_whole_weeks_from_now_on():
    monday = datetime(2026, 11, 30, tzinfo=UTC)
    periods = list(list_periods(monday + timedelta(hours=12)))
    assert [ends - starts for starts, ends in periods] == [PERIOD] * 4
    assert periods[0] == (monday, datetime(2026, 12, 7, tzinfo=UTC))
    just_before = list(list_periods(monday + timedelta(minutes=59)))
    assert just_before[0] == (datetime(2026, 11, 23, tzinfo=UTC), monday), "rows were begun before midnight"


@pytest.mark.parametrize("since", [timedelta(0), timedelta(minutes=59), timedelta(hours=1), timedelta(days=6)])
def test_no_period_is_made_that_the_shortest_retention_drops(since):
    now = datetime(2026, 11, 30, tzinfo=UTC) + since
    (shortest,) = {
        rule.ge for field in Retention.model_fields.values() for rule in field.metadata if isinstance(rule, Ge)
    }
    assert min(ends for _, ends in list_periods(now)) > now - shortest


async def test_expired_partitions_are_dropped_after_what_is_needed_has_moved(new_database):
    dsn = await new_database()
    watcher = Watcher()
    async with Database(dsn) as db, Queue(dsn) as queue:
        hook = await queue.webhook("http://receiver.test/")
        waits, finish, over = [(await queue.deliveries(hook, body=b"%d" % n))[0] for n in range(3)]
        ids = {each: (await queue.live(each))["message_id"] for each in (waits, finish, over)}
        await queue.execute(
            """WITH b AS (
                INSERT INTO batches (tenant_id, name, seq, incarnation_id, finish_message_id)
                VALUES ('t1', 'b', 1, 'i', $1) RETURNING batch_key
            ) UPDATE messages SET batch_key = b.batch_key FROM b WHERE message_id = $1""",
            ids[finish],
        )
        await queue.execute("DELETE FROM deliveries WHERE delivery_id <> $1", waits)
        at = await age(queue, db)
        assert await Partitions(db).drop_expired({"message_bodies": timedelta(days=200)}) == 0
        keeping = Keeping(attempts=timedelta(days=30), messages=timedelta(days=90))
        await PartitionUpkeep(Partitions(db), keeping, watcher.tell).run_once()
        bodies = {row["message_id"] for row in await queue.connection.fetch("SELECT message_id FROM message_bodies")}
        assert bodies == {ids[waits], ids[finish]}
        assert (await queue.live(waits))["body_at"] > at
    assert ("partitions_dropped", {"count": 3}) in watcher.events


async def age(queue, database):
    """Move every body into a period of a hundred days ago."""
    *_, (starts_at, ends_at) = list_periods(await queue.connection.fetchval("SELECT now() - interval '100 days'"), 0)
    async with database.transaction() as session:
        for parent in PARENTS:
            await _make(session, parent, starts_at, ends_at)
    at = starts_at + timedelta(days=1)
    for table in ("message_bodies", "messages", "deliveries"):
        await queue.execute(f"UPDATE {table} SET body_at = $1", at)
    return at
