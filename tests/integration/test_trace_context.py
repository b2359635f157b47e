"""A trace context on its way from an event to a receiver, through the database, without any tracing of our own."""

from datetime import UTC, datetime, timedelta

import pytest

from service.delivery.attempting import AttemptRules
from service.domain.traces import parse_trace
from service.store.partitions import move_bodies
from tests.support.api import running_api
from tests.support.delivering import build_defaults, deliver, until
from tests.support.receiving import Receiver

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "congo=t61rcWkgMzE,rojo=1"}


@pytest.fixture
async def api(database):
    async with running_api(database) as running:
        yield running


@pytest.fixture
async def receiver():
    async with Receiver() as receiver:
        yield receiver


def spans_of(arrivals):
    """Trace ids and span ids that the receiver was told."""
    parts = [arrival.headers["traceparent"].split("-") for arrival in arrivals]
    assert all(len(part) == 4 for part in parts)
    return {trace for _, trace, _, _ in parts}, [span for _, _, span, _ in parts]


async def test_every_attempt_continues_the_context_of_the_event_that_finished_the_batch(api, receiver, database):
    receiver.answer(503)
    put = await api.put("/v1/batches/nov/webhook", {"url": receiver.url, "retry_schedule": [1]})
    done = [
        api.event("job.completed", f"j{n}", status="succeeded") | {"batch": {"name": "nov", "total": 2}} for n in (1, 2)
    ]
    other = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    for event, headers in zip(done, (other, CONTEXT), strict=True):
        assert (await api.post("/v1/events", event, **headers)).status == 202
    async with deliver(database, defaults=build_defaults(), rules=AttemptRules(sample=1.0)) as role:
        await receiver.wait_for(2)
        await until(lambda: len(role.watcher.events) >= 2)
    traces, spans = spans_of(receiver.arrivals)
    assert traces == {TRACE}
    assert len({*spans, SPAN}) == 3
    assert all(arrival.headers["tracestate"] == CONTEXT["tracestate"] for arrival in receiver.arrivals)
    assert all(arrival.verifies(put.json["secret"]) for arrival in receiver.arrivals)
    lines = {name: fields for name, fields in role.watcher.events if name.startswith("attempt")}
    assert {name: fields["attempt"] for name, fields in lines.items()} == {"attempt_failed": 1, "attempt": 2}
    for fields in lines.values():
        assert (fields["batch"], fields["trace_id"], fields["tenant_id"]) == ("nov", TRACE, "t1")
        assert "job_id" not in fields


async def test_no_context_no_header(api, receiver, database):
    await api.post("/v1/webhooks", {"id": "whk_a", "url": receiver.url, "retry_schedule": [3600], "event_types": ["*"]})
    bad = {"traceparent": f"00-{TRACE}-{'0' * 16}-01", "tracestate": "a=1"}
    for job_id, headers in (("none", {}), ("bad", bad), ("good", CONTEXT)):
        event = api.event("job.completed", job_id, status="failed")
        assert (await api.post("/v1/events", event, **headers)).status == 202
    receiver.otherwise = 500
    async with deliver(database) as role:
        await receiver.wait_for(lambda: len({one.document["data"]["job"]["job_id"] for one in receiver.arrivals}) == 3)
        await until(lambda: len({fields["job_id"] for _, fields in role.watcher.events if "job_id" in fields}) == 3)
    told = {arrival.document["data"]["job"]["job_id"]: arrival.headers for arrival in receiver.arrivals}
    assert {job_id: "traceparent" in headers or "tracestate" in headers for job_id, headers in told.items()} == {
        "none": False,
        "bad": False,
        "good": True,
    }
    lines = {fields["job_id"]: fields.get("trace_id") for _, fields in role.watcher.events}
    assert lines == {"none": None, "bad": None, "good": TRACE}


async def test_a_copy_of_a_finish_continues_it_too_and_a_moved_body_keeps_it(api, receiver, database):
    await api.put("/v1/batches/nov/webhook", {"url": receiver.url, "notify_if_done": False})
    event = api.event("job.completed", "j", status="succeeded") | {"batch": {"name": "nov", "total": 1}}
    await api.post("/v1/events", event, **CONTEXT)
    renotified = await api.post("/v1/batches/nov/renotify", {"new_id": True, "force": True})
    assert renotified.status == 202, renotified.raw
    now = datetime.now(UTC)
    async with api.database.transaction() as session:
        assert await move_bodies(session, now - timedelta(days=1), now + timedelta(days=1)) == 1
    stored = await api.fetch("SELECT trace FROM message_bodies")
    assert [row["trace"] for row in stored] == [parse_trace(*CONTEXT.values())] * 2


async def test_a_custom_header_cannot_stand_in_for_the_context(api):
    for name in ("traceparent", "TraceState"):
        refused = await api.post("/v1/webhooks", {"url": "https://receiver.example/", "custom_headers": {name: "x"}})
        assert refused.status == 422
        assert "belongs to the service" in refused.json["errors"][0]["detail"]
