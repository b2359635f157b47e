"""P4 and P5: how long a record takes to its receiver, beside a bare loop and beside receivers that hang.

Belongs here: bursts at a rate, and their percentiles. The instants are taken by the producer and the receiver, on one
clock; see `receiver`.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import orjson

from tests.bench.metering import percentile
from tests.bench.queue import HANGING_BODY, fill, opened_queue, register
from tests.bench.receiver import ADDRESSES
from tests.bench.reporting import Figure
from tests.bench.stage import ADDRESS, BenchError, Stage
from tests.support.delivering import Queue

TENANTS = 50
HEALTHY = 100
HANGING_EACH = 5
HANGING_TIMEOUT = "3s"
SLOWEST = 100  # a second
KEEPS_UP = 50.0  # ms: where a machine does not keep up with a rate, a queue grows, and the median with it
P50, P99 = 0.5, 0.99


@dataclass(frozen=True, slots=True)
class Line:
    """One way from a topic to the receiver."""

    topic: str
    tenants: int


@dataclass(frozen=True, slots=True)
class Clocked:
    """The receiver that says when each POST came."""

    stage: Stage
    port: int

    @property
    def url(self) -> str:
        return f"http://{ADDRESS}:{self.port}/hooks/webhook"

    @property
    def other_url(self) -> str:
        """At an address of its own, so that the backstop on shared addresses is not what is measured."""
        return f"http://{ADDRESSES[1]}:{self.port}/hooks/webhook"

    async def list_latencies(self, run: str, count: int) -> list[float]:
        """Milliseconds from produced to received, once all came. Raises BenchError if some do not."""
        deadline = time.monotonic() + self.stage.scale.patience
        while len(found := await self._ask(run)) < count:
            if time.monotonic() > deadline:
                raise BenchError(f"{count - len(found)} of {count} records did not arrive")
            await asyncio.sleep(0.1)
        return [each / 1e6 for each in found]

    async def count_hanging(self) -> int:
        """How many attempts have been left without an answer."""
        found: int = await self._ask("")
        return found

    async def _ask(self, path: str):
        async with self.stage.http.get(f"http://{ADDRESS}:{self.port}/{path}") as answer:
            return orjson.loads(await answer.read())


@asynccontextmanager
async def opened_receiver(stage: Stage, *options: object) -> AsyncIterator[Clocked]:
    async with stage.child("receiver", *options) as (_, port):
        yield Clocked(stage, int(port))


async def burst(receiver: Clocked, line: Line, rate: int, seconds: float) -> list[float]:
    """Latencies, in ms, of records that are produced at a rate."""
    stage = receiver.stage
    run = stage.new_name("burst")
    written = await stage.ask(
        *("producing", stage.broker, line.topic, run, "--rate", rate, "--seconds", seconds, "--tenants", line.tenants)
    )
    return await receiver.list_latencies(run, written["written"])


@asynccontextmanager
async def opened_lines(stage: Stage, receiver: Clocked) -> AsyncIterator[dict[str, Line]]:
    """A bare loop, the product in one process, and the product in split roles, each with a topic of its own."""
    async with AsyncExitStack() as stack:
        bare = Line(await stage.new_topic(), TENANTS)
        await stack.enter_async_context(stage.child("bare_loop", stage.broker, bare.topic, receiver.url))
        lines = {"bare": bare}
        for name, processes in (("one", (("ingest", "deliver"),)), ("split", (("ingest",), ("deliver",)))):
            topic, database = await stage.new_topic(), await stage.new_database()
            async with opened_queue(database) as queue:
                await register(queue, [receiver.url], TENANTS)
            for roles in processes:
                await stack.enter_async_context(stage.service(database, *roles, topic=topic))
            lines[name] = Line(topic, TENANTS)
        for line in lines.values():  # warm-up
            await burst(receiver, line, stage.scale.rates[0], min(2.0, stage.scale.seconds))
        yield lines


Samples = dict[tuple[str, int], list[tuple[float, float]]]


async def measure_latency(stage: Stage) -> list[Figure]:
    """P4."""
    samples: Samples = defaultdict(list)
    async with opened_receiver(stage) as receiver, opened_lines(stage, receiver) as lines:
        for number in range(min(3, stage.scale.repeats)):
            for rate in stage.scale.rates:
                stage.tell(f"P4: {rate}/s, repetition {number + 1}")
                for name, line in lines.items():
                    found = await burst(receiver, line, rate, stage.scale.seconds)
                    samples[name, rate].append((percentile(found, P50), percentile(found, P99)))
    return [
        figure for name in ("one", "split") for rate in stage.scale.rates for figure in _compare(samples, name, rate)
    ]


def _compare(samples: Samples, name: str, rate: int) -> list[Figure]:
    figures = []
    for column, label, target in ((0, "p50", 2.0), (1, "p99", 15.0)):
        ours, bare = (statistics.median(each[column] for each in samples[way, rate]) for way in (name, "bare"))
        split = ",split" if name == "split" else ""
        raw = f"{ours:.1f} ms, bare loop {bare:.1f} ms"
        figures.append(Figure("P4", ours - bare, target, f"{label}@{rate}/s{split}", raw))
    return figures


# --- P5 -----------------------------------------------------------------------------------------------------------


async def measure_fairness(stage: Stage) -> list[Figure]:
    """P5."""
    found: defaultdict[int, list[float]] = defaultdict(list)
    ways = {0: "", 1: "hang-in-1-tenant", stage.scale.hanging: f"hang-in-{stage.scale.hanging}-tenants"}
    async with opened_receiver(stage) as receiver:
        rate = await _find_rate(stage, receiver)
        for number in range(max(1, stage.scale.repeats - 1)):
            for tenants, label in ways.items():
                stage.tell(f"P5: {label or 'nothing hangs'}, repetition {number + 1}")
                found[tenants].append((await _measure_healthy(stage, receiver, tenants, rate))[P99])
    alone = statistics.median(found[0])
    return [
        _build_fairness(rate, label, statistics.median(found[tenants]), alone)
        for tenants, label in ways.items()
        if label
    ]


def _build_fairness(rate: int, label: str, beside: float, alone: float) -> Figure:
    return Figure("P5", beside / alone, 1.5, label, f"p99 {beside:.1f} ms, alone {alone:.1f} ms, at {rate}/s")


async def _find_rate(stage: Stage, receiver: Clocked) -> int:
    """The rate of the scale, halved until the machine keeps up: past that, a p99 says how long a queue has grown."""
    rate = stage.scale.healthy_rate
    while rate > SLOWEST and (median := (await _measure_healthy(stage, receiver, 0, rate))[P50]) > KEEPS_UP:
        stage.tell(f"P5: {rate}/s is more than this machine carries (p50 {median:.0f} ms with nothing that hangs)")
        rate //= 2
    return rate


async def _measure_healthy(stage: Stage, receiver: Clocked, hanging_tenants: int, rate: int) -> dict[float, float]:
    """The p50 and p99 of the healthy ones, in ms, while deliveries to the others hang; each of them was seen to be well."""
    topic, database = await stage.new_topic(), await stage.new_database()
    line = Line(topic, HEALTHY)
    async with opened_queue(database) as queue:
        await register(queue, [receiver.url], HEALTHY)
        async with stage.service(database, "ingest", "deliver", topic=topic, request_timeout=HANGING_TIMEOUT):
            await burst(receiver, line, max(rate, 2 * HEALTHY), 1.0)
            if hanging_tenants:
                await _let_hang(stage, receiver, queue, hanging_tenants)
            try:
                latencies = await burst(receiver, line, rate, 2 * stage.scale.seconds)
            except BenchError as error:
                raise BenchError(f"{error}; of healthy webhooks are queued: {await _describe(queue)}") from error
    return {share: percentile(latencies, share) for share in (P50, P99)}


async def _describe(queue: Queue) -> list[dict[str, object]]:
    """What stands in the queue for the webhooks that answer."""
    rows = await queue.connection.fetch(
        """SELECT state, attempts, last_error, lease_token IS NOT NULL AS leased, count(*) FROM deliveries
        WHERE job_id LIKE 'at-%' GROUP BY 1, 2, 3, 4 LIMIT 10"""
    )
    return [dict(row) for row in rows]


async def _let_hang(stage: Stage, receiver: Clocked, queue: Queue, tenants: int) -> None:
    """Queue deliveries that will hang; return once as many attempts do as can be expected."""
    urls, before = [receiver.other_url], await receiver.count_hanging()
    keys: Sequence[int] = await register(queue, urls, stage.scale.hanging, tenants=tenants, first=HEALTHY)
    await fill(queue.connection, keys, stage.new_name("hang"), HANGING_EACH * stage.scale.hanging, body=HANGING_BODY)
    expected = min(50, stage.scale.hanging) if tenants == 1 else stage.scale.hanging // 8  # 50: of a tenant at a host
    deadline = time.monotonic() + 20
    while await receiver.count_hanging() - before < expected:
        if time.monotonic() > deadline:
            raise BenchError("the hanging receivers were not attempted")
        await asyncio.sleep(0.1)
