"""Plans: what is called on an empty queue again and again must go by the right index once there is a backlog."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg
import orjson
import pytest

from service.store.database import Database
from service.store.statements import statement
from tests.support.delivering import Queue

LANES = 20
EACH = 60


async def explain(session, call: str) -> list[tuple[str, str]]:
    """The index scans of a call's plan: index and condition."""
    text = await session.connection.fetchval(f"EXPLAIN (FORMAT JSON) {call}")
    return [(node["Index Name"], node.get("Index Cond", "")) for node in walk(text) if "Index Name" in node]


def walk(explained: str) -> Iterator[dict[str, Any]]:
    """The nodes of a plan."""
    left = [orjson.loads(explained)[0]["Plan"]]
    while left:
        yield (node := left.pop())
        left += node.get("Plans", ())


@pytest.fixture
async def no_autovacuum(database):
    """Nothing is learnt of the queue while it fills."""
    async with Queue(database) as queue:
        await queue.execute("ALTER TABLE deliveries SET (autovacuum_enabled = off)")
        yield
        await queue.execute("ALTER TABLE deliveries RESET (autovacuum_enabled)")


CLAIM_TYPES = (
    "bigint[], double precision[], integer, double precision, jsonb, integer, integer, bigint, double precision"
)


async def test_a_backlog_in_a_queue_that_was_empty_is_claimed_lane_by_lane(database, no_autovacuum):
    call = "EXECUTE claim ('{}', '{}', 2000, '-infinity', '{}', 4, 500, 7, 60.0)"
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.execute("VACUUM (ANALYZE) deliveries")
        await session.connection.execute(f"PREPARE claim ({CLAIM_TYPES}) AS {statement('deliveries_claim')}")
        for _ in range(8):  # a plan is cached from the sixth call on
            assert len(await session.connection.fetch(call)) == 1
        for _ in range(LANES):
            await queue.deliveries(await queue.webhook("http://receiver.test/"), EACH)
        scans = await explain(session, call)
        taken = await session.connection.fetch(call)
    assert len(taken) == LANES * 4
    assert {name for name, _ in scans if name.startswith("deliveries")} == {
        "deliveries_due",
        "deliveries_next",
        "deliveries_of_group",
        "deliveries_pkey",
    }
    assert [cond for name, cond in scans if name == "deliveries_due" and "ROW(lane, due_at) <= " in cond]


async def test_a_single_lane_is_claimed_by_its_own_index(database, no_autovacuum):
    call = "EXECUTE claim ('{1}', '{-infinity}', 0, '-infinity', '{}', 4, 500, 7, 60.0)"
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.deliveries(await queue.webhook("http://receiver.test/"), 2_000)
        await queue.execute("ANALYZE deliveries")
        await session.connection.execute(f"PREPARE claim ({CLAIM_TYPES}) AS {statement('deliveries_claim')}")
        scans = await explain(session, call)
    conditions = [cond for name, cond in scans if name == "deliveries_due"]
    assert len(conditions) == 1
    assert "ROW(lane, due_at) >= " in conditions[0]


async def test_what_is_set_aside_is_looked_for_at_the_front_of_its_lane(database, no_autovacuum):
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.deliveries(await queue.webhook("http://receiver.test/"), 2_000)
        await queue.execute("ANALYZE deliveries")
        types = "bigint, double precision, bigint[], integer"
        await session.connection.execute(f"PREPARE aside ({types}) AS {statement('deliveries_set_aside')}")
        scans = await explain(session, "EXECUTE aside (-1, '-infinity', '{1}', 1000)")
    assert {name for name, _ in scans} == {"deliveries_due", "deliveries_pkey"}
    assert all("ROW(lane, due_at) >= " in cond for name, cond in scans if name == "deliveries_due")


async def test_no_index_but_its_own_can_serve_a_lane(database):
    """Whatever sizes the planner takes them to have: without that one no other takes its place."""
    call = "EXECUTE claim ('{1}', '{-infinity}', 2000, '-infinity', '{}', 4, 500, 7, 60.0)"
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.deliveries(await queue.webhook("http://receiver.test/"), 100)
        transaction = session.connection.transaction()
        await transaction.start()
        await session.connection.execute("DROP INDEX deliveries_due; SET LOCAL enable_seqscan = off")
        await session.connection.execute(f"PREPARE claim ({CLAIM_TYPES}) AS {statement('deliveries_claim')}")
        scans = await explain(session, call)
        await transaction.rollback()
    conditions = [condition for name, condition in scans if name == "deliveries_next"]
    assert len(conditions) == 1  # what became due lately, of any lane
    assert "due_at >= " in conditions[0]


async def test_a_claim_goes_past_what_left_the_queue_while_an_old_transaction_is_open(database, no_autovacuum):
    """Entries of those deliveries cannot be removed from the index, and looking at each means a visit to the table."""
    async with Queue(database) as queue, Queue(database) as old, Database(database, size=1) as store:
        hooks = [await queue.webhook("http://receiver.test/") for _ in range(LANES)]
        async with old.connection.transaction(isolation="repeatable_read"):
            await old.connection.fetchval("SELECT count(*) FROM deliveries")
            for hook in hooks:
                await queue.deliveries(hook, 10 * EACH)
            since = await queue.connection.fetchval("SELECT extract(EPOCH FROM now())::double precision")
            await queue.execute("DELETE FROM deliveries")
            for hook in hooks:
                await queue.deliveries(hook, 1)
            async with store.session() as session:
                everything, recent = [await count_buffers(session, start) for start in (float("-inf"), since)]
    assert recent < everything / 2


@pytest.mark.parametrize(
    "name", [f"deliveries_{each}" for each in ("claim", "renew", "decided", "release", "wake_passed")]
)
async def test_the_index_of_leases_serves_nothing_but_their_end(database, no_autovacuum, name):
    """It looks best while hardly anything is leased: it is small then, but may hold all leased since a snapshot."""
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        hook = await queue.webhook("http://receiver.test/")
        for group in range(10):
            await queue.deliveries(hook, 200, group_key=group, generation=group)
        await queue.execute("ANALYZE deliveries")
        parameters = (await session.connection.prepare(statement(name))).get_parameters()
        scans = await explain(session, await prepare(session, name, parameters))
    assert "deliveries_leased" not in {index for index, _ in scans}
    assert scans


async def prepare(session, name: str, parameters: Sequence[asyncpg.Type]) -> str:
    """A call of a statement, with NULL for everything but flags."""
    types = ", ".join(each.name for each in parameters)
    await session.connection.execute(f"PREPARE call ({types}) AS {statement(name)}")
    return f"EXECUTE call ({', '.join('false' if each.name == 'bool' else 'NULL' for each in parameters)})"


async def count_buffers(session, since: float) -> int:
    """What a claim touches that is rolled back."""
    transaction = session.connection.transaction()
    await transaction.start()
    query = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement("deliveries_claim")
    text = await session.connection.fetchval(query, [], [], 2_000, since, "{}", 4, 500, 7, 60.0)
    await transaction.rollback()
    found = next(walk(text))
    assert found["Actual Rows"] == LANES
    return found["Shared Hit Blocks"] + found["Shared Read Blocks"]


async def test_whoever_waits_for_another_is_looked_for_among_those_that_wait(database):
    call = "EXECUTE wake (500)"
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.deliveries(await queue.webhook("http://receiver.test/"), 500)
        await queue.execute("ANALYZE deliveries")
        await session.connection.execute(f"PREPARE wake (integer) AS {statement('deliveries_wake_orphans')}")
        scans = await explain(session, call)
    assert "deliveries_waiting" in {name for name, _ in scans}
    assert all(cond for _, cond in scans), "nothing is walked from end to end"


async def test_extra_attempts_of_a_lane_are_looked_for_without_the_others(database):
    call = "EXECUTE wake ('{1}', 5.0, 50)"
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.deliveries(await queue.webhook("http://receiver.test/"), 500)
        await queue.execute("ANALYZE deliveries")
        await session.connection.execute(
            f"PREPARE wake (bigint[], double precision, integer) AS {statement('deliveries_wake_extra')}"
        )
        scans = await explain(session, call)
    assert [cond for name, cond in scans if name == "deliveries_extra" and "ROW(lane, due_at) < " in cond], scans


async def test_what_is_held_too_long_is_looked_for_by_its_age(database):
    call = "EXECUTE age_out (100.0, 1000)"
    async with Database(database, size=1) as store, store.session() as session:
        await session.connection.execute(f"PREPARE age_out (double precision, integer) AS {statement('held_age_out')}")
        scans = await explain(session, call)
    assert [cond for name, cond in scans if name == "deliveries_held" and "held_at < " in cond], scans


async def test_a_list_reads_a_page_though_nothing_is_known_of_a_partition_yet(database):
    arguments = (["t"], 2**62, 51, True, True, "t", *[None] * 6, 51)
    async with Queue(database) as queue, Database(database, size=1) as store, store.session() as session:
        await queue.execute(
            """INSERT INTO deliveries_done (
                delivery_id, tenant_id, webhook_id, message_id, body_at, type, scope, generation, state, attempts,
                created_at, first_due_at, finished_at
            )
            SELECT n, 't', 'w', 'm' || n, now(), 'extraction.completed', 0, 1, 4, 1, now(), now(), now()
            FROM generate_series(1, 20000) AS n"""
        )
        query = "EXPLAIN (ANALYZE, FORMAT JSON) " + statement("list_deliveries_of_tenants")
        text = await session.connection.fetchval(query, *arguments)
    assert max(node["Actual Rows"] for node in walk(text)) == 51
