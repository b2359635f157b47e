"""The service over a real Apache Kafka: foreign clients, a broker that restarts, processes that come and go."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import orjson
import pytest

from tests.e2e.load import Ledger, Load, all_delivered
from tests.e2e.story import completed, new_tenant, opened_topic, queued
from tests.kafka.conftest import PARTITIONS
from tests.support.service import build_settings


@asynccontextmanager
async def tenant_of(service, kafka, topic):
    async with AsyncExitStack() as stack:
        opened = await stack.enter_async_context(opened_topic(kafka.bootstrap_servers, topic, PARTITIONS))
        yield await stack.enter_async_context(new_tenant(service, opened))


async def test_records_of_a_foreign_client_become_a_webhook(kafka, topic, settings, new_service, receiver):
    """Kafka's own console producer writes plain JSON and a CloudEvent."""
    async with new_service(settings) as service, tenant_of(service, kafka, topic) as tenant:
        batch = tenant.batch("invoices-nov")
        secret = (await batch.register(receiver))["secret"]
        await kafka.produce(topic, as_lines(batch, queued("A"), queued("B"), completed("A")), *PARSED)
        await kafka.produce(topic, as_cloud_event(batch, completed("B", "failed")), *PARSED)
        await receiver.wait_for(1)
        await tenant.quiet()
        (arrival,) = receiver.arrivals
        assert arrival.verify(secret).data["counts"] == {"total": 2, "succeeded": 1, "failed": 1, "canceled": 0}
        assert await service.stop() == 0, service.tail()


PARSED = ("--property=parse.key=true", "--property=parse.headers=true")


def as_lines(batch, *events):
    return "".join(as_line(batch, "producer:console", orjson.dumps(batch.complete(event))) for event in events)


def as_line(batch, headers, value):
    return f"{headers}\t{batch.tenant.tenant_id}/{batch.name}\t{value.decode()}\n"


def as_cloud_event(batch, event):
    """Binary mode: the attributes are headers. A colon in a value would be read as the end of one: no `ce_time`."""
    data = batch.complete(event)
    attributes = {"ce_specversion": "1.0", "ce_id": data.pop("event_id"), "ce_type": data.pop("event_type")}
    attributes["ce_source"] = data.pop("source")
    headers = ",".join(f"{name}:{value}" for name, value in attributes.items())
    return as_line(batch, headers, orjson.dumps(data))


@pytest.mark.parametrize("kill", [False, True], ids=["in order", "killed"])
async def test_a_broker_restart_in_the_middle(kafka, topic, settings, new_service, receiver, kill):
    async with new_service(settings) as service, tenant_of(service, kafka, topic) as tenant:
        await tenant.register(receiver, event_types=["*"], scopes=["job"], max_in_flight=20)
        load = Load(tenant)
        async with load.over_kafka():
            await receiver.wait_for(50)
            await kafka.restart(kill=kill)
            accepted = len(load.accepted)
            await receiver.wait_for(lambda: len(receiver.arrivals) > accepted + 50, within=120)
        await receiver.wait_for(all_delivered(receiver, load))
        await tenant.quiet()
        ledger = Ledger(receiver)
        ledger.assert_nothing_lost(load)
        ledger.assert_no_duplicates()
        assert await service.stop() == 0, service.tail()


async def test_processes_that_come_and_go_share_the_partitions(kafka, topic, settings, new_service, receiver):
    """A second process joins under load, then the first one leaves."""
    second = {**settings, **ports_of(build_settings())}
    async with new_service(settings) as one, new_service(second) as two, tenant_of(two, kafka, topic) as tenant:
        await tenant.register(receiver, event_types=["*"], scopes=["job"], max_in_flight=20)
        load = Load(tenant)
        async with load.over_kafka():
            await until_both_consume(one, two)
            assert await one.stop() == 0, one.tail()
            already = len(receiver.arrivals)
            await receiver.wait_for(lambda: len(receiver.arrivals) > already + 50)
        await receiver.wait_for(all_delivered(receiver, load))
        await tenant.quiet()
        ledger = Ledger(receiver)
        ledger.assert_nothing_lost(load)
        ledger.assert_no_duplicates()


def ports_of(settings):
    return {name: value for name, value in settings.items() if name.endswith("_PORT")}


async def until_both_consume(*services):
    async with asyncio.timeout(120):
        before = [await applied(service) for service in services]
        while any(now <= then + 20 for now, then in zip([await applied(s) for s in services], before, strict=True)):
            await asyncio.sleep(0.1)


async def applied(service):
    return await service.fetch_metric("job_events_total", outcome="applied")
