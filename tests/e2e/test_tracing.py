"""The installed program with OpenTelemetry's SDK, against a real OTLP receiver: consume, persist, create, attempt."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import orjson
import pytest
from anyio.from_thread import BlockingPortal

from tests.e2e.story import Tenant, completed, queued
from tests.support.collector import Collector, Told
from tests.support.helm import render
from tests.support.receiving import Receiver
from tests.support.service import Service, build_settings, eventually

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "congo=t61rcWkgMzE"}
HEADER_SECRET = "collector-key-0123456789"


@pytest.fixture(scope="module")
def collector(portal: BlockingPortal) -> Iterator[Collector]:
    collector = Collector()
    portal.call(collector.open)
    yield collector
    portal.call(collector.close)


def as_the_chart_sets(**otel: object) -> dict[str, str]:
    """The variables that every container gets of the chart's `otel` values."""
    objects = render({"secrets": {"existingSecret": "webhookd"}, "otel": otel})
    (settings,) = (each for each in objects if each["kind"] == "ConfigMap")
    (deployment,) = (each for each in objects if each["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": settings["metadata"]["name"]}}]
    return {name: text for name, text in settings["data"].items() if name.startswith("OTEL_")}


@pytest.fixture(scope="module")
def more_settings(collector: Collector) -> dict[str, str]:
    tracing = as_the_chart_sets(
        OTEL_EXPORTER_OTLP_ENDPOINT=f"http://127.0.0.1:{collector.port}",
        OTEL_RESOURCE_ATTRIBUTES="deployment.environment.name=tests",
        OTEL_BSP_SCHEDULE_DELAY=100,
    )
    headers = {"OTEL_EXPORTER_OTLP_HEADERS": f"x-collector-key={HEADER_SECRET}"}
    return {**tracing, **headers, "WEBHOOKD_LOG_SUCCESS_SAMPLE": "1"}


async def produce(tenant: Tenant, event: dict, **headers: str) -> None:
    await tenant.topic._producer.send_and_wait(
        tenant.topic.name,
        orjson.dumps(tenant.complete(event)),
        headers=[(name, text.encode()) for name, text in headers.items()],
    )


async def until_exported(collector: Collector, name: str, count: int, **attributes: object) -> list[Told]:
    async def found() -> list[Told] | None:
        matching = [span for span in collector.named(name) if attributes.items() <= span.attributes.items()]
        return matching if len(matching) >= count else None

    return await eventually(found)


async def until_there(collector: Collector, name: str, fits: Callable[[Told], bool]) -> Told:
    async def found() -> Told | None:
        return next((span for span in collector.named(name) if fits(span)), None)

    return await eventually(found)


async def test_one_trace_from_the_producer_to_every_attempt(tenant, receiver, collector, service):
    webhook = await tenant.register(receiver, custom_headers={"X-Api-Key": "custom-header-value"})
    receiver.answer(503)
    await produce(tenant, completed("traced", webhook_id=webhook["webhook_id"]), **CONTEXT)
    arrivals = await receiver.wait_for(2)
    attempts = await until_exported(collector, "POST", 2, **{"webhookd.tenant_id": tenant.tenant_id})
    (create,) = await until_exported(collector, "create extraction.completed", 1, **{"webhookd.job_id": "traced"})
    poll = await until_there(collector, f"process {tenant.topic.name}", lambda span: (TRACE, SPAN) in span.links)
    ingest = await until_there(collector, "ingest", lambda span: span.parent_id == poll.span_id)

    assert (poll.kind, poll.parent_id, poll.failed) == ("consumer", "", False)
    assert poll.trace_id == ingest.trace_id != TRACE
    assert poll.attributes["messaging.system"] == "kafka"
    assert poll.attributes["messaging.operation.type"] == "process"
    assert poll.attributes["messaging.consumer.group.name"] == tenant.topic.name
    assert poll.attributes["messaging.batch.message_count"] >= 1
    assert (create.kind, create.trace_id, create.parent_id) == ("producer", TRACE, SPAN)
    assert create.links == (ingest.place,)
    assert create.attributes["messaging.message.id"] == arrivals[0].message_id
    assert {span.parent_id for span in attempts} == {create.span_id}
    first, second = attempts
    assert [span.attributes["http.response.status_code"] for span in attempts] == [503, 200]
    assert [span.attributes["webhookd.outcome"] for span in attempts] == ["http_error", "delivered"]
    assert [span.attributes.get("http.request.resend_count") for span in attempts] == [None, 1]
    assert (first.failed, first.attributes["error.type"], second.failed) == (True, "503", False)
    told = [arrival.headers["traceparent"] for arrival in arrivals]
    assert told == [f"00-{TRACE}-{span.span_id}-01" for span in attempts]
    assert {arrival.headers["tracestate"] for arrival in arrivals} == {CONTEXT["tracestate"]}
    assert all(arrival.verifies(webhook["secret"]) for arrival in arrivals)


async def test_a_finish_by_its_settle_window_continues_the_event_that_completed_the_batch(tenant, receiver, collector):
    batch = tenant.batch("nov")
    await batch.register(receiver)
    await batch.produce(queued("a"))
    event = tenant.complete(completed("a"))
    data = {"tenant_id": tenant.tenant_id, "job_id": "a", "status": "succeeded", "batch": {"name": "nov"}}
    envelope = {"specversion": "1.0", "id": event["event_id"], "source": "native", "type": "job.completed"}
    await tenant.topic.write_cloud_event({**envelope, "time": event["occurred_at"], **CONTEXT, "data": data})
    (arrival,) = await receiver.wait_for(1)
    assert arrival.headers["traceparent"].split("-")[1] == TRACE
    (attempt,) = await until_exported(collector, "POST", 1, **{"webhookd.tenant_id": tenant.tenant_id})
    create = await until_there(collector, "create extraction.completed", lambda span: span.span_id == attempt.parent_id)
    assert (create.trace_id, create.parent_id) == (TRACE, SPAN)
    settle = await until_there(collector, "settle", lambda span: span.place in create.links)
    assert settle.kind == "internal"


async def test_a_request_is_one_trace_and_what_has_no_context_gets_one(tenant, receiver, collector):
    webhook = await tenant.register(receiver)
    event = tenant.complete(completed("by-http", webhook_id=webhook["webhook_id"]))
    await tenant.api.post("/v1/events", event)
    (arrival,) = await receiver.wait_for(1)
    (attempt,) = await until_exported(collector, "POST", 1, **{"webhookd.tenant_id": tenant.tenant_id})
    await until_there(collector, "POST /v1/events", lambda span: span.trace_id == attempt.trace_id)
    await until_there(collector, "ingest", lambda span: span.trace_id == attempt.trace_id)
    await until_there(collector, "create extraction.completed", lambda span: span.trace_id == attempt.trace_id)
    ours = [span for span in collector.spans if span.trace_id == attempt.trace_id]
    names = {span.name: span.kind for span in ours}
    assert names == {
        "POST /v1/events": "server",
        "ingest": "internal",
        "create extraction.completed": "producer",
        "POST": "client",
    }
    assert arrival.headers["traceparent"].startswith(f"00-{attempt.trace_id}-{attempt.span_id}-")
    by_id = {span.span_id: span for span in ours}
    path = [attempt.name]
    while (span := by_id.get(attempt.parent_id)) is not None:
        attempt = span
        path.append(attempt.name)
    assert path == ["POST", "create extraction.completed", "ingest", "POST /v1/events"]


async def test_an_attempt_that_never_came_to_sending_has_its_span(tenant, collector):
    webhook = await tenant.api.post("/v1/webhooks", {"url": "https://nobody.invalid/", "retry_schedule": [3600]})
    await produce(tenant, completed("lost", webhook_id=webhook["webhook_id"]))
    (attempt,) = await until_exported(collector, "POST", 1, **{"webhookd.tenant_id": tenant.tenant_id})
    assert attempt.failed
    assert attempt.attributes["error.type"] == attempt.attributes["webhookd.outcome"] == "dns_error"
    assert attempt.attributes["server.address"] == "nobody.invalid"
    assert attempt.nanoseconds > 0


async def test_log_lines_know_the_trace(tenant, receiver, service):
    webhook = await tenant.register(receiver)
    receiver.answer(500)
    before = service.log.read_bytes().count(b'"event":"ingested"')
    await produce(tenant, completed("logged", webhook_id=webhook["webhook_id"], batch={"name": "oct"}), **CONTEXT)
    await receiver.wait_for(lambda: receiver.accepted)

    def lines(event: str) -> list[dict]:
        parsed = [orjson.loads(line) for line in service.log.read_bytes().split(b"\n")[:-1] if line.startswith(b"{")]
        return [line for line in parsed if line["event"] == event]

    async def logged() -> bool:
        return bool([line for line in lines("attempt") if line["tenant_id"] == tenant.tenant_id])

    await eventually(logged)
    for event in ("attempt_failed", "attempt"):
        (line,) = [line for line in lines(event) if line["tenant_id"] == tenant.tenant_id]
        assert (line["batch"], line["job_id"], line["trace_id"]) == ("oct", "logged", TRACE)
    ingested = [line for line in lines("ingested") if line.get("trace_id") == TRACE]
    assert ingested
    assert ingested[-1]["records"] == ingested[-1]["applied"] == ingested[-1]["messages"] == 1
    assert ingested[-1]["deliveries"] == 1
    assert ingested[-1]["partitions"][0].startswith(f"{tenant.topic.name}/")

    async def handed_over() -> bool:
        """Soon, if not at once: a process that stood still for two seconds looks at its webhooks first."""
        if any(line["handed_over"] == line["deliveries"] == 1 for line in lines("ingested")[before:]):
            return True
        await produce(tenant, completed(f"again-{len(lines('ingested'))}", webhook_id=webhook["webhook_id"]))
        return False

    await eventually(handed_over, every=2)


async def test_what_is_exported_holds_no_secret_and_names_us(collector, service):
    """Last: over everything that the tests above made."""
    assert all(
        (said["service.name"], said["deployment.environment.name"]) == ("webhookd", "tests")
        for said in collector.resources
    )
    assert all(headers["x-collector-key"] == HEADER_SECRET for headers in collector.headers)
    assert HEADER_SECRET.encode() not in service.log.read_bytes()
    everything = b"".join(collector.bodies)
    for secret in (b"/hooks/", b"custom-header-value", b"whsec_", service.settings["WEBHOOKD_OPERATOR_KEY"].encode()):
        assert secret not in everything


async def test_a_collector_that_is_away_delays_nothing_and_stops_nothing(tmp_path, shared_database):
    settings = build_settings(shared_database)
    away = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9", "OTEL_BSP_SCHEDULE_DELAY": "50"}
    async with (
        Service({**settings, **away}, tmp_path / "away.log", "api", "deliver") as service,
        Receiver() as receiver,
    ):
        from aiohttp import ClientSession

        from tests.support.service import Api, make_tenant_id

        async with ClientSession() as http:
            tenant = Tenant(Api(service.api_url, make_tenant_id(), http), None, "native")
            webhook = await tenant.register(receiver)
            await tenant.api.post("/v1/events", tenant.complete(completed("j", webhook_id=webhook["webhook_id"])))
            await receiver.wait_for(1)
        assert await service.stop(within=30) == 0
