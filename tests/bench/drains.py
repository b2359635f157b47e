"""P1, P2, P3 and P9: CPU and WAL per delivery, of deliveries that wait until all are there.

Belongs here: the drains. The window is exact: the processes are up and warm, due rows appear by one COMMIT, and records
by letting a stopped process go on; the counters are read right before it and once nothing is left to do.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from tests.bench.metering import Meter, Reading, Spent, find_postmaster
from tests.bench.profiling import profiled
from tests.bench.queue import fill, opened_queue, register
from tests.bench.reporting import Figure
from tests.bench.stage import BenchError, Stage
from tests.support.delivering import Queue
from tests.support.service import Service

HOOKS = 50
PROCESSES = 4
COMMAND_TIMEOUT = 600.0


@dataclass(slots=True)
class Drained:
    """One drain."""

    spent: Spent
    vacuum: Spent
    duplicates: int


@dataclass(slots=True)
class Workshop:
    """Service processes on a database of their own, and the webhooks that they deliver to."""

    stage: Stage
    queue: Queue
    services: list[Service]
    keys: list[int]
    meter: Meter
    topic: str = ""
    drained: list[Drained] = field(default_factory=list)

    async def drain(self, count: int) -> Drained:
        """Let deliveries become due by one COMMIT, and measure until all are recorded."""
        await self._tidy()
        connection, run = self.queue.connection, self.stage.new_name("drain")
        received = await self.stage.nginx.count(self.stage.http)
        async with connection.transaction():
            await fill(connection, self.keys, run, count)
            before = await self.meter.read()
        return await self._finish(before, received, count)

    async def drain_topic(self, count: int) -> Drained:
        """Write records while the process is stopped, let it go on, and measure until all are recorded."""
        await self._tidy()
        (service,) = self.services
        received = await self.stage.nginx.count(self.stage.http)
        service.freeze()
        try:
            await self.produce(count)
            before = await self.meter.read()
        finally:
            service.thaw()
        return await self._finish(before, received, count)

    async def produce(self, count: int) -> None:
        """Write records of finished jobs, one delivery each."""
        run = self.stage.new_name("run")
        await self.stage.ask(*("producing", self.stage.broker, self.topic, run, "--count", count, "--tenants", HOOKS))

    async def _finish(self, before: Reading, received: int, count: int) -> Drained:
        await self.wait_for_receiver(received + count)
        await self.wait_until_recorded()
        after = await self.meter.read()
        duplicates = await self.stage.nginx.count(self.stage.http) - received - count
        await self.queue.connection.execute("VACUUM deliveries", timeout=COMMAND_TIMEOUT)
        vacuum = await self.meter.read() - after
        return Drained((after - before).per(count), vacuum.per(count), duplicates)

    async def _tidy(self) -> None:
        """Nothing of what came before falls into the window by chance."""
        await self.queue.connection.execute("VACUUM (ANALYZE) deliveries", timeout=COMMAND_TIMEOUT)
        await self.queue.connection.execute("CHECKPOINT", timeout=COMMAND_TIMEOUT)

    async def wait_for_receiver(self, count: int) -> None:
        """Until the receiver has got so many."""
        deadline = time.monotonic() + self.stage.scale.patience
        while (got := await self.stage.nginx.count(self.stage.http)) < count:
            if time.monotonic() > deadline or not all(service.running for service in self.services):
                raise BenchError(f"{count - got} deliveries did not come; {await self._describe()}")
            await asyncio.sleep(0.02)

    async def wait_until_recorded(self) -> None:
        """Until the queue is empty."""
        deadline = time.monotonic() + self.stage.scale.patience
        await asyncio.sleep(0.05)
        while await self.queue.connection.fetchval("SELECT EXISTS (SELECT FROM deliveries)"):
            if time.monotonic() > deadline:
                raise BenchError(f"deliveries stay in the queue; {await self._describe()}")
            await asyncio.sleep(0.02)

    async def _describe(self) -> str:
        """What stands in the queue, and what the first process says."""
        rows = await self.queue.connection.fetch(
            """SELECT state, reason, attempts, last_error, lease_token IS NOT NULL AS leased, count(*)
            FROM deliveries GROUP BY 1, 2, 3, 4, 5 LIMIT 10"""
        )
        return f"queue: {[dict(row) for row in rows]}; log: {self.services[0].tail(2000)}"


@asynccontextmanager
async def opened_workshop(
    stage: Stage, *roles: str, processes: int = 1, kafka: bool = False
) -> AsyncIterator[Workshop]:
    """Start the processes and warm them up: connections are open, webhooks known and proven."""
    database = await stage.new_database()
    topic = await stage.new_topic() if kafka else ""
    async with AsyncExitStack() as stack:
        queue = await stack.enter_async_context(opened_queue(database))
        keys = await register(queue, [stage.nginx.url], HOOKS)
        services = [
            await stack.enter_async_context(stage.service(database, *roles, topic=topic)) for _ in range(processes)
        ]
        postmaster = await find_postmaster(queue.connection)
        meter = Meter(queue.connection, postmaster, [service.pid for service in services])
        shop = Workshop(stage, queue, services, keys, meter, topic)
        await _warm_up(shop)
        yield shop


async def _warm_up(shop: Workshop) -> None:
    stage = shop.stage
    for _ in range(2):
        received = await stage.nginx.count(stage.http)
        if shop.topic:
            await shop.produce(stage.scale.warm_up)
        else:
            await fill(shop.queue.connection, shop.keys, stage.new_name("warm"), stage.scale.warm_up)
        await shop.wait_for_receiver(received + stage.scale.warm_up)
        await shop.wait_until_recorded()


class Baseline:
    """aiohttp's client, measured again with every repetition."""

    def __init__(self) -> None:
        self._rounds: list[dict[str, tuple[float, float]]] = []

    async def measure(self, stage: Stage) -> None:
        self._rounds.append(await stage.ask("baseline", stage.nginx.port, stage.scale.posts))

    @property
    def best(self) -> tuple[float, str]:
        """Microseconds of CPU per POST at the best number in flight, and how that came."""
        medians = {
            name: tuple(statistics.median(one[name][column] for one in self._rounds) for column in (0, 1))
            for name in self._rounds[0]
        }
        name, (cpu, rate) = min(medians.items(), key=lambda item: item[1][0])
        return cpu, f"aiohttp {cpu:.1f} µs at {name} in flight, {rate:,.0f}/s"


async def measure_drains(stage: Stage) -> list[Figure]:
    """P1, P2 and P9, repetitions interleaved with the baseline's."""
    baseline = Baseline()
    async with (
        opened_workshop(stage, "deliver") as rows,
        opened_workshop(stage, "ingest", "deliver", kafka=True) as records,
    ):
        for number in range(stage.scale.repeats):
            stage.tell(f"P1, P2, P9: repetition {number + 1} of {stage.scale.repeats}")
            await baseline.measure(stage)
            rows.drained.append(await rows.drain(stage.scale.rows))
            records.drained.append(await records.drain_topic(stage.scale.rows))
        await _profile(stage, "P1", rows, rows.drain)
        await _profile(stage, "P2", records, records.drain_topic)
    return _build_figures(baseline, rows.drained, records.drained)


async def _profile(stage: Stage, row: str, shop: Workshop, drain: Callable[[int], Awaitable[object]]) -> None:
    """One drain more under py-spy, which is not counted."""
    if stage.profile is not None:
        async with profiled(shop.services[0].pid, stage.profile / f"{row}.txt"):
            await drain(stage.scale.rows)


def _build_figures(baseline: Baseline, rows: Sequence[Drained], records: Sequence[Drained]) -> list[Figure]:
    cpu, said = baseline.best
    due, kafka = (Spent.median([each.spent for each in many]) for many in (rows, records))
    vacuum = Spent.median([each.vacuum for each in rows])
    both, wal = due.service + due.postgres + vacuum.postgres, (due.wal + vacuum.wal) / 1000
    parts = f"service {due.service:.1f} + PostgreSQL {due.postgres:.1f} + vacuum {vacuum.postgres:.1f}"
    from_kafka = f"from Kafka {kafka.service + kafka.postgres:.0f} (PostgreSQL {kafka.postgres:.0f})"
    return [
        Figure("P1", due.service / cpu, 0.5, raw=f"service {due.service:.1f} µs, {due.rate:,.0f}/s; {said}"),
        Figure("P2", kafka.service / cpu, 0.8, raw=f"service {kafka.service:.1f} µs, {kafka.rate:,.0f}/s; {said}"),
        Figure("P9", both, 45, "cpu-us", f"{parts}; {from_kafka}"),
        Figure("P9", wal, 2.5, "wal-KB", f"vacuum's {vacuum.wal:,.0f} B in it; from Kafka {kafka.wal:,.0f} B"),
    ]


async def measure_processes(stage: Stage) -> list[Figure]:
    """P3: four deliver processes against one."""
    spent: dict[int, list[Drained]] = {1: [], PROCESSES: []}
    for number in range(stage.scale.repeats):
        for processes, drained in spent.items():
            stage.tell(f"P3: {processes} processes, repetition {number + 1} of {stage.scale.repeats}")
            async with opened_workshop(stage, "deliver", processes=processes) as shop:
                drained.append(await shop.drain(stage.scale.rows))
    one, four = (Spent.median([each.spent for each in spent[processes]]) for processes in (1, PROCESSES))
    duplicates = sum(each.duplicates for each in spent[PROCESSES])
    raw = (
        f"{PROCESSES}: service {four.service:.1f} + PostgreSQL {four.postgres:.1f} µs, {four.rate:,.0f}/s; "
        f"1: {one.service:.1f} + {one.postgres:.1f} µs, {one.rate:,.0f}/s"
    )
    ratio = (four.service + four.postgres) / (one.service + one.postgres)
    return [Figure("P3", ratio, 1.25, raw=raw), Figure("P3", duplicates, 0, "duplicates")]
