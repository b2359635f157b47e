"""P7 and P10: what a large state costs beside a small one.

Belongs here: filling both, and the statements, events and calls that are measured on each.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

import asyncpg
import orjson
from aiohttp import ClientSession

from service.delivery.claiming import (
    FIRST_LANE,
    LANES_PER_CLAIM,
    PER_CLAIM,
    PER_UNKNOWN_LANE,
    RECENT,
    ClaimRequest,
)
from service.store.database import Database
from service.store.deliveries import DeliveryStore
from service.store.gauges import QueueLook
from service.store.statements import columns, statement
from tests.bench.metering import Meter, find_postmaster, percentile
from tests.bench.producing import name_tenant
from tests.bench.queue import fill, opened_queue, register
from tests.bench.reporting import Figure
from tests.bench.stage import BenchError, Stage
from tests.support.service import Api

HOOKS = 1_000
CHUNK = 250_000
ROUNDS = 40
CALLS = 20
GAUGES_EVERY = 5.0
LONG = 3_600.0
LISTS = (
    "/v1/deliveries",
    "/v1/deliveries?state=failed",
    "/v1/deliveries?webhook=whk_1",
    "/v1/batches",
    "/v1/webhooks",
    "/v1/operator/top?by=pending",
)

Lanes = deque[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Cost:
    """What one size of the queue costs: ms and buffers of a claim with its record, ms of each list, ms of the gauges."""

    milliseconds: float
    buffers: float
    lists: dict[str, float]
    gauges: float


async def measure_scale(stage: Stage) -> list[Figure]:
    """P7 and P10."""
    costs = []
    for rows in (stage.scale.small, stage.scale.large):
        stage.tell(f"P7, P10: {rows:,} rows")
        costs.append(await _measure_size(stage, rows))
    small, large = costs
    return [*_compare(stage, small, large), await _measure_batches(stage)]


def _compare(stage: Stage, small: Cost, large: Cost) -> list[Figure]:
    rows = f"{stage.scale.large:,} rows"
    ratios = {path: large.lists[path] / small.lists[path] for path in small.lists}
    worst = max(ratios, key=lambda path: ratios[path])
    gauges = large.gauges / 1000 / GAUGES_EVERY * 100
    return [
        Figure("P7", large.milliseconds / small.milliseconds, 1.3, "claim+record-time",
               f"{large.milliseconds:.1f} ms at {rows}, {small.milliseconds:.1f} ms"),
        Figure("P7", large.buffers / small.buffers, 1.3, "claim+record-buffers",
               f"{large.buffers:,.0f} at {rows}, {small.buffers:,.0f}"),
        Figure("P10", ratios[worst], 2, "lists",
               f"{worst}: {large.lists[worst]:.1f} ms at {rows}, {small.lists[worst]:.1f} ms"),
        Figure("P10", gauges, 1, "gauges-%-of-a-core", f"{large.gauges:.1f} ms each {GAUGES_EVERY:.0f} s at {rows}"),
    ]  # fmt: skip


async def _measure_size(stage: Stage, rows: int) -> Cost:
    database = await stage.new_database()
    async with opened_queue(database) as queue, Database(database, size=2) as pool:
        await queue.connection.execute(f"SET statement_timeout = '{int(LONG)}s'")
        keys = await register(queue, [stage.nginx.url], min(HOOKS, rows), tenants=1)
        for first in range(0, rows, CHUNK):
            await fill(queue.connection, keys, f"large{first}", min(CHUNK, rows - first), body=None)
        await queue.connection.execute("VACUUM (ANALYZE)", timeout=LONG)
        await queue.connection.execute("CHECKPOINT", timeout=LONG)
        store = DeliveryStore(pool)
        lanes = await _list_lanes(store)
        buffers = await _count_buffers(queue.connection, lanes)
        milliseconds, finished = await _time_claims(store, lanes)
        await fill(queue.connection, keys, "again", finished, body=None)
        gauges = await _time_gauges(QueueLook(pool))
        return Cost(milliseconds, buffers, await _time_lists(stage, database), gauges)


async def _list_lanes(store: DeliveryStore) -> Lanes:
    """All lanes with something due, and since when, as a survey brings them every ten seconds."""
    found = await store.list_lanes(FIRST_LANE, HOOKS)
    return deque(zip(found.lanes, found.oldest, strict=True))


def _build_request(token: int, lanes: Lanes) -> ClaimRequest:
    """A claim as from a backlog: of lanes that are behind, in turns, and of what became due lately."""
    asked = dict(islice(lanes, LANES_PER_CLAIM))
    lanes.rotate(-LANES_PER_CLAIM)
    return ClaimRequest(
        asked, time.time(), RECENT, {}, PER_UNKNOWN_LANE, PER_CLAIM, token, 60.0, time.monotonic() + 60.0
    )


async def _time_claims(store: DeliveryStore, lanes: Lanes) -> tuple[float, int]:
    """Milliseconds of a claim and the record of all it brought, the median; and how many deliveries are finished now."""
    found, finished = [], 0
    for token in range(1, ROUNDS + 1):
        before = time.perf_counter()
        claimed = await store.claim(_build_request(token, lanes))
        now = time.time()
        await store.record_accepted(
            [(row.delivery_id, row.token, 1, now, 5, 204, None, "http://x", None, False) for row in claimed.rows]
        )
        found.append((time.perf_counter() - before) * 1e3)
        finished += len(claimed.rows)
        if not claimed.rows:
            break
    return statistics.median(found), finished


async def _count_buffers(connection: asyncpg.Connection, lanes: Lanes) -> float:
    """Buffers that a claim and its record touch."""
    transaction = connection.transaction()
    await transaction.start()
    try:
        request = _build_request(1, lanes)
        claim = await _explain(
            connection,
            "deliveries_claim",
            *columns(request.lanes.items(), 2),
            request.recent,
            request.since,
            "{}",
            request.default,
            request.limit,
            request.token,
            request.lease,
        )
        rows = await connection.fetch("SELECT delivery_id FROM deliveries WHERE lease_token = 1")
        given = [[row["delivery_id"], 1, 1, time.time(), 5, 204, None, "http://x", None, False] for row in rows]
        record = await _explain(connection, "deliveries_delivered", orjson.dumps(given).decode())
    finally:
        await transaction.rollback()
    return claim + record


async def _explain(connection: asyncpg.Connection, name: str, *arguments: object) -> int:
    text = await connection.fetchval("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement(name), *arguments)
    plan = orjson.loads(text)[0]["Plan"]
    return int(plan["Shared Hit Blocks"] + plan["Shared Read Blocks"])


async def _time_gauges(look: QueueLook) -> float:
    """Milliseconds of one look at the queue, the median."""
    found = []
    for _ in range(CALLS):
        before = time.perf_counter()
        await look.look()
        found.append((time.perf_counter() - before) * 1e3)
    return statistics.median(found)


async def _time_lists(stage: Stage, database: str) -> dict[str, float]:
    """Milliseconds of each list call, the median."""
    async with stage.service(database, "api") as service, ClientSession() as http:
        api = Api(service.api_url, name_tenant(0), http)
        found: dict[str, list[float]] = {}
        for _ in range(CALLS):
            for path in LISTS:
                before = time.perf_counter()
                await api.get(path)
                found.setdefault(path, []).append((time.perf_counter() - before) * 1e3)
    return {path: percentile(times, 0.5) for path, times in found.items()}


# --- Batches ------------------------------------------------------------------------------------------------------


async def _measure_batches(stage: Stage) -> Figure:
    """CPU per event into a large batch ÷ into a small one."""
    topic, database = await stage.new_topic(), await stage.new_database()
    sizes = dict(zip(("small", "large"), stage.scale.jobs, strict=True))
    found: dict[str, list[float]] = {name: [] for name in sizes}
    async with opened_queue(database) as queue, stage.service(database, "ingest", topic=topic) as service:
        meter = Meter(queue.connection, await find_postmaster(queue.connection), [service.pid])
        batches = Batches(stage, queue.connection, topic)
        for name, jobs in sizes.items():
            await batches.grow(name, jobs)
        await queue.connection.execute("VACUUM (ANALYZE)", timeout=LONG)
        for _ in range(stage.scale.repeats):
            for name in sizes:
                service.freeze()
                count = await batches.produce(name, stage.scale.small // 2)
                before = await meter.read()
                service.thaw()
                await batches.wait()
                spent = (await meter.read() - before).per(count)
                found[name].append(spent.service + spent.postgres)
    small, large = (statistics.median(found[name]) for name in sizes)
    raw = f"{large:.0f} µs in a batch of {sizes['large']:,}, {small:.0f} µs in one of {sizes['small']:,}"
    return Figure("P7", large / small, 1.3, "ingest-per-event", raw)


class Batches:
    """Jobs that are queued, in batches that never finish."""

    def __init__(self, stage: Stage, connection: asyncpg.Connection, topic: str) -> None:
        self._stage = stage
        self._connection = connection
        self._topic = topic
        self._written = 0

    async def grow(self, name: str, jobs: int) -> None:
        await self.produce(name, jobs)
        await self.wait()

    async def produce(self, name: str, count: int) -> int:
        arguments: Sequence[object] = ("--count", count, "--events", "queued", "--batch", name)
        run = self._stage.new_name("batch")
        await self._stage.ask("producing", self._stage.broker, self._topic, run, *arguments)
        self._written += count
        return count

    async def wait(self) -> None:
        """Until everything is ingested."""
        deadline = time.monotonic() + self._stage.scale.patience
        while (
            await self._connection.fetchval("SELECT coalesce(sum(next_offset), 0) FROM kafka_offsets") < self._written
        ):
            if time.monotonic() > deadline:
                raise BenchError("events were not ingested")
            await asyncio.sleep(0.02)
