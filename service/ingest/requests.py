"""Events that come over HTTP: the same pipeline for producers without Kafka (``POST /v1/events``).

Belongs here: one request, one transaction, one result per event. Does not belong here: HTTP and keys
(``service.api``). A bad event is told to its sender; it becomes no dead letter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Protocol

from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome
from service.ingest.bisecting import Offer
from service.ingest.cloudevents import find_id
from service.ingest.poison import DeadLetter, Reason, Skipped
from service.ingest.poll import Headers, Ingests, Poll, PollResult, Record
from service.ingest.reading import Reader
from service.ingest.spans import Consuming


class Incoming(Protocol):
    """One event as it came, in the form of a Kafka record."""

    @property
    def value(self) -> bytes:
        """The raw value."""

    @property
    def headers(self) -> Headers:
        """``content-type`` and ``ce_…`` headers."""


class RequestReport(Protocol):
    """What is counted."""

    def job_events(self, outcome: str, count: int = 1) -> None:
        """Count events by outcome."""

    def event_anomalies(self, kind: str, count: int = 1) -> None:
        """Count oddities."""


class EventRequests:
    """Makes the events of a request durable."""

    def __init__(
        self, reader: Reader, ingestor: Ingests, report: RequestReport, spans: Consuming | None = None
    ) -> None:
        self._reader = reader
        self._ingestor = ingestor
        self._report = report
        self._spans = spans

    async def ingest_events(self, events: Sequence[Incoming], tenant_id: str) -> Sequence[Mapping[str, object]]:
        """Apply the events in order, in one transaction; return one result per event.

        A result has ``outcome`` (a word of ``job_events_total``, or ``rejected`` with ``reason`` and ``detail``) and
        the ``event_id`` where it could be read. Raises StoreUnavailable: then nothing is durable.
        """
        records = [self._reader.read_alone(event.value, event.headers) for event in events]
        good = {i: r for i, r in enumerate(records) if _refusal(r, tenant_id) is None}
        outcomes = await self._ingest(tuple(good.values()))
        by_position = dict(zip(good, outcomes, strict=True))
        ids = [_find_id(event, record) for event, record in zip(events, records, strict=True)]
        return [_result(record, by_position.get(i), tenant_id, ids[i]) for i, record in enumerate(records)]

    async def _ingest(self, records: tuple[Record, ...]) -> list[EventOutcome | None]:
        outcomes: list[EventOutcome | None] = []

        def done(poll: Poll, result: PollResult) -> None:
            outcomes.extend(result.outcomes)
            self._count(poll, result)

        if records:
            with self._spans.consume(records) if self._spans else nullcontext():
                await Offer(Poll(records), done, lambda *_: None).run(self._ingestor.ingest)
        return outcomes

    def _count(self, poll: Poll, result: PollResult) -> None:
        for outcome, count in result.counts.items():
            self._report.job_events(outcome, count)
        for kind, count in result.anomalies.items():
            self._report.event_anomalies(kind, count)
        for record in poll.records:
            for kind in record.content.anomalies if isinstance(record.content, JobEvent) else ():
                self._report.event_anomalies(kind)


def _event_of(record: Record) -> JobEvent | None:
    content = record.content
    if isinstance(content, Skipped):
        return content.event
    return content if isinstance(content, JobEvent) else None


def _refusal(record: Record, tenant_id: str) -> tuple[str, str] | None:
    if isinstance(record.content, DeadLetter):
        return record.content.reason, record.content.detail
    event = _event_of(record)
    if event is not None and event.tenant_id != tenant_id:
        return "foreign_tenant", "tenant_id is not the key's tenant"
    return None


def _find_id(incoming: Incoming, record: Record) -> str | None:
    event = _event_of(record)
    return event.event_id if event else find_id(incoming.value, incoming.headers)


def _result(record: Record, outcome: EventOutcome | None, tenant_id: str, event_id: str | None) -> Mapping[str, object]:
    refusal = _refusal(record, tenant_id)
    if refusal is None and outcome is EventOutcome.DEAD_LETTER:
        refusal = (Reason.INTERNAL_ERROR, "the event could not be stored")
    if refusal is not None:
        return {"event_id": event_id, "outcome": "rejected", "reason": refusal[0], "detail": refusal[1]}
    assert outcome is not None, "what was not refused was applied"
    return {"event_id": event_id, "outcome": outcome.value}
