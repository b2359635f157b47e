"""What breaks lights the alerts that `grafana/RUNBOOK.md` says, and no others: on a clock 20 times faster."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from service.tools.embedded import embedded_broker, embedded_postgres
from tests.e2e.story import QUICK, Tenant, completed, create_topic, new_tenant, opened_topic
from tests.support.postgres import migrate
from tests.support.prometheus import ROOT, RULES, Prometheus, speed_up
from tests.support.receiving import Answer, Receiver
from tests.support.service import Service, build_settings, eventually, expire_leases

pytestmark = [pytest.mark.xdist_group("outages"), pytest.mark.timeout(600)]

FASTER = 20
CALM = 4  # seconds without any other alert
RUNBOOK = (ROOT / "grafana" / "RUNBOOK.md").read_text()
LIT = {
    what: set(re.findall(r"Webhookd\w+", lit))
    for what, lit in re.findall(r"^\| \*(.+?)\* \| (.+) \|$", RUNBOOK, re.MULTILINE)
}


@dataclass
class Scene:
    """Two processes, one of which only delivers, a tenant, and the way to break what they stand on."""

    prometheus: Prometheus
    main: Service
    worker: Service
    tenant: Tenant
    dsn: str
    database: AsyncExitStack
    broker: AsyncExitStack
    seen: set[str] = field(default_factory=set)
    coming: set[str] = field(default_factory=set)

    async def tell(self, job_id: str, webhook: Mapping[str, Any]) -> None:
        """A job finished; told by HTTP, which needs no Kafka."""
        event = completed(job_id, webhook_id=webhook["webhook_id"])
        await self.tenant.api.post("/v1/events", self.tenant.complete(event))

    async def list_fresh(self, what: str) -> set[str]:
        """What fires now and did not before; nothing but what is expected may."""
        fresh = await self.prometheus.list_firing() - self.seen
        assert fresh <= LIT[what] | self.coming, f"{what}: {fresh - LIT[what] - self.coming} fire"
        return fresh

    async def lights(self, what: str) -> None:
        """Exactly the alerts of the runbook's line light up, and stay the only ones for a while."""

        async def lit() -> bool:
            return await self.list_fresh(what) >= LIT[what]

        await eventually(lit, within=240, every=0.25)
        for _ in range(CALM):
            await asyncio.sleep(1)
            await self.list_fresh(what)
        self.seen = await self.prometheus.list_firing() - self.coming


def faster_rules(directory: Path) -> list[Path]:
    copies = []
    for path in RULES:
        copies.append(directory / path.name)
        copies[-1].write_text(re.sub(r"\n    interval: \w+", "", speed_up(path.read_text(), FASTER)))
    return copies


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(AsyncExitStack())
        kafka = await stack.enter_async_context(AsyncExitStack())
        dsn = await database.enter_async_context(embedded_postgres())
        broker = await kafka.enter_async_context(embedded_broker())
        await migrate(dsn)
        await create_topic(broker, "outages", 1)
        settings = build_settings(dsn, kafka_bootstrap_servers=broker, kafka_topics="outages", kafka_group_id="outages")
        main = await stack.enter_async_context(Service(settings, tmp_path / "main.log"))
        own = {name: value for name, value in build_settings(dsn).items() if name.endswith("_PORT")}
        worker = await stack.enter_async_context(Service({**settings, **own}, tmp_path / "worker.log", "deliver"))
        targets = {
            each: service.ops_url.removeprefix("http://") for each, service in (("main", main), ("worker", worker))
        }
        prometheus = Prometheus(tmp_path, targets, faster_rules(tmp_path), every="500ms")
        stack.callback(prometheus.launch().end)
        await prometheus.wait_until_ready()
        topic = await stack.enter_async_context(opened_topic(broker, "outages", 1))
        tenant = await stack.enter_async_context(new_tenant(main, topic))
        yield Scene(prometheus, main, worker, tenant, dsn, database, kafka)


async def test_kafka_a_receiver_a_worker_and_the_database_each_light_their_alerts(scene):
    await all_is_well(scene)
    await kafka_goes_away(scene)
    await a_receiver_goes_down(scene)
    await a_worker_is_killed(scene)
    scene.coming = set()
    await scene.lights("Kafka")
    await the_database_goes_away(scene)


async def all_is_well(scene: Scene) -> None:
    async with Receiver() as receiver:
        webhook = await scene.tenant.register(receiver)
        await scene.tenant.produce(completed("first", webhook_id=webhook["webhook_id"]))
        await receiver.wait_for(1)
    await asyncio.sleep(7)  # the gauges of the leader, and everything that only starts
    assert await scene.prometheus.list_firing() == set()


async def kafka_goes_away(scene: Scene) -> None:
    """The consumer gives its partitions up after a minute: other things happen meanwhile."""
    scene.coming = LIT["Kafka"]
    await scene.broker.aclose()


async def a_receiver_goes_down(scene: Scene) -> None:
    receiver = Receiver()
    await receiver.open()
    webhook = await scene.tenant.register(receiver, retry_schedule=[1])
    await receiver.close()
    await scene.tell("nobody-there", webhook)
    await scene.lights("a receiver, until its schedules end")


async def a_worker_is_killed(scene: Scene) -> None:
    """With attempts in flight; its leases are let run out at once."""
    async with Receiver() as receiver:
        receiver.otherwise = Answer(200, delay=20)
        rounds = itertools.count()

        async def has_attempts() -> bool:
            """New deliveries are sent by the process that made them; second attempts by whoever claims them."""
            if await scene.worker.fetch_metric("deliveries_in_flight"):
                return True
            webhook = await scene.tenant.register(receiver, retry_schedule=QUICK)
            receiver.script.append(500)
            await scene.tell(f"second-{next(rounds)}", webhook)
            return False

        await eventually(has_attempts, every=0.3)
        await scene.worker.kill()
        await expire_leases(scene.dsn)
        await scene.lights("a deliver process")


async def the_database_goes_away(scene: Scene) -> None:
    await scene.database.aclose()
    await scene.lights("the database")
    assert scene.main.running  # it waits; InstanceDown is the killed worker's alone
