"""Events over HTTP: ``POST /v1/events``, for producers without Kafka."""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

import msgspec
from aiohttp import web

from service.api.answers import EventResults
from service.api.calls import Answer, Call
from service.api.parts import IncomingEvent
from service.api.problems import Problem
from service.api.reading import check_media_type, media_type, parse_json
from service.ingest.cloudevents import BATCHED, STRUCTURED

MAX_EVENTS = 500
_array = msgspec.json.Decoder(list[msgspec.Raw])
_any = msgspec.json.Decoder(msgspec.Raw)


def _context(request: web.Request) -> tuple[tuple[str, bytes], ...]:
    """Return the CloudEvents headers of binary mode as those of a record (HTTP binding 1.0.2, section 3.1.3)."""
    return tuple(
        (name.lower().replace("ce-", "ce_", 1), unquote_to_bytes(value.encode("utf-8", "surrogateescape")))
        for name, value in request.headers.items()
        if name.lower().startswith("ce-")
    )


def _trace(request: web.Request) -> tuple[tuple[str, bytes], ...]:
    """Return the request's trace context as headers of a record; several ``traceparent`` are none (section 3.2)."""
    parents, states = request.headers.getall("traceparent", []), request.headers.getall("tracestate", [])
    if len(parents) != 1:
        return ()
    given = (("traceparent", parents[0]), ("tracestate", ",".join(states)))
    return tuple((name, value.encode("utf-8", "surrogateescape")) for name, value in given if value)


def _check(body: bytes) -> None:
    """Refuse what is no JSON; its numbers are nobody's business here. Raises Problem (400)."""
    try:
        _any.decode(body.decode())
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        parse_json(body)  # it says where
        raise Problem(400, "malformed_json", "The body is not valid JSON.") from None


def _split(body: bytes) -> list[bytes]:
    """Cut an array into its elements, each the bytes it came in. Raises Problem (400)."""
    try:
        parts = [bytes(part) for part in _array.decode(body)]
    except (msgspec.DecodeError, RecursionError):
        raise Problem(400, "malformed_json", "The body is no JSON array of events.") from None
    if not 1 <= len(parts) <= MAX_EVENTS:
        raise Problem(422, "bad_event_count", f"An array holds 1 to {MAX_EVENTS} events.")
    return parts


def read_events(request: web.Request, body: bytes) -> list[IncomingEvent]:
    """Read one event, an array, or a CloudEvent in any of its forms. Raises Problem."""
    check_media_type(request, body)
    if not body.strip():
        raise Problem(400, "malformed_json", "The body is empty.")
    kind, context, trace = media_type(request), _context(request), _trace(request)
    structured = (("content-type", STRUCTURED.encode()),) if kind in {STRUCTURED, BATCHED} else ()
    if context and not structured:
        return [IncomingEvent(body, context + trace)]
    if kind == BATCHED or body.lstrip(b" \t\r\n").startswith(b"["):
        return [IncomingEvent(part, structured + trace) for part in _split(body)]
    _check(body)
    return [IncomingEvent(body, structured + trace)]


async def post(call: Call) -> Answer:
    """Take job events; 202 once they are durable."""
    if call.parts.events is None:
        raise Problem(503, "no_ingest", "This process takes no events.", headers={"Retry-After": "30"})
    events = read_events(call.request, call.raw_body)
    results = await call.parts.events.ingest_events(events, call.tenant_id)
    return Answer(202, EventResults.model_validate({"results": results}))
