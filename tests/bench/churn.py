"""P8: the hot table, the claim and the process after long churn, with a long transaction in the middle third.

Belongs here: the churn and its samples.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg

from service.delivery.backlog import LATEST_COMMIT
from service.delivery.claiming import RECENT
from service.delivery.intake import POLL
from service.store.statements import statement
from tests.bench.metering import percentile, read_memory
from tests.bench.queue import fill, opened_queue, register
from tests.bench.reporting import Figure
from tests.bench.stage import Stage

HOOKS = 50
RATE = 300
FIRST_MINUTE = 60.0
WARM_UP = 5.0


@dataclass(frozen=True, slots=True)
class Sample:
    """One second of it: bytes of the hot table with its indexes, ms of a claim, bytes of the process's memory."""

    at: float
    size: int
    claim: float
    memory: int


async def measure_churn(stage: Stage) -> list[Figure]:
    """P8."""
    third = stage.scale.churn / 3
    stage.tell(f"P8: {stage.scale.churn:.0f} s at {RATE}/s")
    database = await stage.new_database()
    async with opened_queue(database) as queue, stage.service(database, "deliver") as service:
        keys = await register(queue, [stage.nginx.url], HOOKS)
        await _churn(stage, queue.connection, keys, service.pid, min(WARM_UP, third))
        samples = await _churn(stage, queue.connection, keys, service.pid, third)
        async with _open_snapshot(database):
            beside = await _churn(stage, queue.connection, keys, service.pid, third)
        after = await _churn(stage, queue.connection, keys, service.pid, third)
    first = samples[: max(1, int(min(FIRST_MINUTE, third)))]
    last = after[-len(first) :]
    return [*_compare(first, last, 1.2, "after"), *_compare(first, beside, 3, "while-open")]


@asynccontextmanager
async def _open_snapshot(database: str) -> AsyncIterator[None]:
    connection = await asyncpg.connect(database)
    try:
        async with connection.transaction(isolation="repeatable_read"):
            await connection.fetchval("SELECT count(*) FROM deliveries")
            yield
    finally:
        await connection.close(timeout=5)


async def _churn(
    stage: Stage, connection: asyncpg.Connection, keys: list[int], pid: int, seconds: float
) -> list[Sample]:
    """Queue deliveries second by second; a sample of each second."""
    start, samples = time.monotonic(), []
    for number in range(max(1, int(seconds))):
        await fill(connection, keys, stage.new_name("churn"), RATE, spread=1.0 / RATE)
        await _sleep_until(start + number + 1)
        samples.append(await _sample(connection, pid))
    return samples


async def _sleep_until(at: float) -> None:
    await asyncio.sleep(max(0.0, at - time.monotonic()))


async def _sample(connection: asyncpg.Connection, pid: int) -> Sample:
    size = await connection.fetchval("SELECT pg_total_relation_size('deliveries')")
    transaction = connection.transaction()
    await transaction.start()
    try:
        since = await connection.fetchval("SELECT extract(EPOCH FROM now())::double precision") - LATEST_COMMIT - POLL
        before = time.perf_counter()
        await connection.fetch(statement("deliveries_claim"), [], [], RECENT, since, "{}", 4, 1, 1, 60.0)
        claim = (time.perf_counter() - before) * 1e3
    finally:
        await transaction.rollback()
    return Sample(time.monotonic(), size, claim, read_memory(pid))


def _compare(first: list[Sample], later: list[Sample], target: float, label: str) -> list[Figure]:
    def ratio(what: str, was: float, now: float, unit: str) -> Figure:
        return Figure("P8", now / was, target, f"{what}-{label}", f"{now:,.1f} {unit}, first {was:,.1f}")

    return [
        ratio("size", max(s.size for s in first) / 1e6, max(s.size for s in later) / 1e6, "MB"),
        ratio(
            "claim-p99", percentile((s.claim for s in first), 0.99), percentile((s.claim for s in later), 0.99), "ms"
        ),
        ratio("memory", max(s.memory for s in first) / 2**20, max(s.memory for s in later) / 2**20, "MiB"),
    ]
