"""Spans of OpenTelemetry: consume, persist, create, attempt. Imported only when tracing is on: its library is an extra.

Belongs here: names, attributes and links after the semantic conventions for messaging and HTTP. A poll is one span that
links to the context of every event in it; a message's own span continues the event that made it and links to the
transaction; attempts continue the message. Never a URL's path or query (``url.full`` is left out), no header, no body, no
text of an exception. Does not belong here: when a span begins and ends (``service.ingest``, ``service.delivery``).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, SERVICE_VERSION, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    StatusCode,
    TraceFlags,
    TraceState,
    get_current_span,
    set_span_in_context,
)

from service import __version__
from service.delivery.entries import Entry
from service.delivery.ready import ReadyDelivery
from service.delivery.spans import AttemptSpan
from service.domain.attempts import Outcome, OutcomeClass
from service.domain.events import JobEvent
from service.domain.traces import split_trace
from service.ingest.poll import NOWHERE, Record
from service.lifecycle import Clock
from service.ports import NewMessage

CLOSE_WITHIN: Final = 3.0
_NANO: Final = 1_000_000_000
_ROUTE: Final = "/v1/events"
Attributes = dict[str, str | int]


@dataclass(frozen=True, slots=True)
class Made:
    """A span of ours with the context that goes on from it."""

    span: Span
    trace: str

    def end(self) -> None:
        """Hand it to the exporter."""
        self.span.end()


class Spans:
    """Implements ``ingest.spans.IngestSpans`` and ``delivery.spans.AttemptSpans`` on the SDK."""

    def __init__(self, clock: Clock, *, group_id: str, queue_size: int | None = None) -> None:
        """``queue_size``: spans that may wait for the exporter; None is what the SDK's variables say. Others drop out."""
        self._clock = clock
        self._group_id = group_id
        self._provider = TracerProvider(resource=_build_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(), max_queue_size=queue_size))
        self._tracer = self._provider.get_tracer("webhookd", __version__)

    async def close(self) -> None:
        """Export what is left; a collector that does not answer is not waited for longer than ``CLOSE_WITHIN``."""
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def shut_down() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(closed.set)

        threading.Thread(target=shut_down, daemon=True, name="spans_close").start()
        try:
            await asyncio.wait_for(closed.wait(), CLOSE_WITHIN)
        except TimeoutError:
            return

    # --- ingest ---------------------------------------------------------------------------------------------------

    @contextmanager
    def consume(self, records: Sequence[Record]) -> Iterator[None]:
        """A poll, or a request to ``POST /v1/events``."""
        traces = list(dict.fromkeys(r.content.trace for r in records if isinstance(r.content, JobEvent)))
        contexts = [_read(trace) for trace in traces if trace]
        if records and records[0].partition == NOWHERE:
            parent = contexts.pop() if len(contexts) == 1 else Context()
            name, kind, attributes = f"POST {_ROUTE}", SpanKind.SERVER, _describe_request(len(records))
        else:
            parent, kind = Context(), SpanKind.CONSUMER
            name, attributes = self._describe_poll(records)
        with self._around(name, kind, attributes, contexts, parent) as span:
            yield
            if kind is SpanKind.SERVER:
                span.set_attribute("http.response.status_code", 202)

    def _describe_poll(self, records: Sequence[Record]) -> tuple[str, Attributes]:
        partitions = {record.partition for record in records}
        topics = {topic for topic, _ in partitions}
        attributes: Attributes = {
            "messaging.system": "kafka",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": self._group_id,
            "messaging.batch.message_count": len(records),
        }
        if len(topics) == 1:
            attributes["messaging.destination.name"] = topics.pop()
        if len(partitions) == 1:
            attributes["messaging.destination.partition.id"] = str(partitions.pop().number)
        return f"process {attributes.get('messaging.destination.name', '')}".rstrip(), attributes

    @contextmanager
    def persist(self, name: str, records: Sequence[Record] = ()) -> Iterator[None]:
        """A transaction with all its tries."""
        attributes: Attributes = {"db.system.name": "postgresql"}
        if records:
            attributes["messaging.batch.message_count"] = len(records)
        with self._around(name, SpanKind.INTERNAL, attributes):
            yield

    def create(self, message: NewMessage) -> Made:
        """A message, in the trace of its event, or of the transaction that makes it."""
        transaction = get_current_span().get_span_context()
        linked = message.trace is not None and transaction.is_valid
        span = self._tracer.start_span(
            f"create {message.type}",
            context=_read(message.trace) if message.trace else None,
            kind=SpanKind.PRODUCER,
            attributes=_describe_message(message),
            links=[Link(transaction)] if linked else None,
        )
        return Made(span, _write(span))

    def find_trace_id(self) -> str | None:
        """The id of the trace under way."""
        context = get_current_span().get_span_context()
        return f"{context.trace_id:032x}" if context.is_valid else None

    @contextmanager
    def _around(
        self,
        name: str,
        kind: SpanKind,
        attributes: Attributes,
        linked: Sequence[Context] = (),
        parent: Context | None = None,
    ) -> Iterator[Span]:
        links = [Link(get_current_span(context).get_span_context()) for context in linked]
        with self._tracer.start_as_current_span(
            name, parent, kind, attributes, links, record_exception=False, set_status_on_exception=False
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, type(error).__qualname__)
                raise

    # --- delivery -------------------------------------------------------------------------------------------------

    def begin(self, row: ReadyDelivery, entry: Entry) -> Made:
        """An attempt starts."""
        span = self._start_attempt(row, entry)
        return Made(span, _write(span))

    def end(self, row: ReadyDelivery, entry: Entry, outcome: Outcome, span: AttemptSpan | None) -> AttemptSpan:
        """An attempt has ended; one without a span began ``outcome.duration`` ago."""
        made = span if isinstance(span, Made) else self._make_late(row, entry, outcome)
        made.span.set_attribute("webhookd.outcome", outcome.kind.value)
        if outcome.status is not None:
            made.span.set_attribute("http.response.status_code", outcome.status)
        if outcome.kind is not OutcomeClass.DELIVERED:
            _fail(made.span, outcome.kind.value if outcome.status is None else str(outcome.status))
        made.end()
        return made

    def _make_late(self, row: ReadyDelivery, entry: Entry, outcome: Outcome) -> Made:
        began = self._clock.now().timestamp() - outcome.duration
        span = self._start_attempt(row, entry, int(began * _NANO))
        return Made(span, _write(span))

    def _start_attempt(self, row: ReadyDelivery, entry: Entry, began: int | None = None) -> Span:
        return self._tracer.start_span(
            "POST",
            context=_read(row.trace) if row.trace else Context(),
            kind=SpanKind.CLIENT,
            attributes=_describe_attempt(row, entry),
            start_time=began,
        )


def _build_resource() -> Resource:
    """What the variables say of this process, and our name where they say none."""
    said = Resource({SERVICE_VERSION: __version__}).merge(Resource.create())
    named = not str(said.attributes.get(SERVICE_NAME, "unknown_service")).startswith("unknown_service")
    return said if named else said.merge(Resource({SERVICE_NAME: "webhookd"}))


def _describe_request(events: int) -> Attributes:
    return {"http.request.method": "POST", "http.route": _ROUTE, "messaging.batch.message_count": events}


def _describe_message(message: NewMessage) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "webhookd",
        "messaging.operation.name": "create",
        "messaging.operation.type": "create",
        "messaging.message.id": message.message_id,
        "messaging.message.body.size": len(message.body),
        "webhookd.tenant_id": message.tenant_id,
        "webhookd.scope": message.scope,
        "webhookd.generation": message.generation,
    }
    return attributes if message.job_id is None else {**attributes, "webhookd.job_id": message.job_id}


def _describe_attempt(row: ReadyDelivery, entry: Entry) -> Attributes:
    attributes: Attributes = {
        "messaging.system": "webhookd",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.message.id": row.message_id,
        "http.request.method": "POST",
        "webhookd.tenant_id": row.tenant_id,
        "webhookd.webhook_id": entry.webhook_id,
        "webhookd.delivery_id": f"dlv_{row.delivery_id}",
        "webhookd.attempt": row.number,
    }
    if row.attempts:
        attributes["http.request.resend_count"] = row.attempts
    if entry.target is not None:
        attributes["url.scheme"] = "https" if entry.target.tls else "http"
        attributes |= {"server.address": entry.target.host, "server.port": entry.target.port}
    return attributes


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _read(trace: str) -> Context:
    """A context that ``parse_trace`` has judged: nothing is to be judged again, as the propagator would."""
    parent, state = split_trace(trace)
    _, trace_id, span_id, flags = parent.split("-")
    states = TraceState.from_header([state]) if state else None
    flagged = TraceFlags(int(flags, 16))
    context = SpanContext(int(trace_id, 16), int(span_id, 16), is_remote=True, trace_flags=flagged, trace_state=states)
    return set_span_in_context(NonRecordingSpan(context), Context())


def _write(span: Span) -> str:
    context = span.get_span_context()
    parent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"
    state = context.trace_state.to_header()
    return f"{parent} {state}" if state else parent
