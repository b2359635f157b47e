"""Bytes and headers -> a job event, or the reason why not. Pure, and the only reader of events there is.

Belongs here: the rules of chapter 2 that need a profile or several fields. Does not belong here: the fields' types and
bounds (wire), the CloudEvents forms (cloudevents), what an event does (``service.domain``).

Every event passes here, so the ordinary case is decided in place, and only what looks unusual is handed to the
functions below, which judge it and say why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from msgspec import UNSET, Raw

from service.domain.events import BatchRef, EventType, JobEvent
from service.domain.instants import EARLIEST, LATEST, in_utc
from service.domain.names import DOTS, is_name
from service.domain.profiles import NATIVE, TERMINAL_WORDS, Profile, ProfileSet
from service.ingest import cloudevents, wire
from service.ingest.poison import TOMBSTONE, Reason, Refused, quoted
from service.ingest.poll import Parsed
from service.ingest.wire import WireBatch, WireEvent

DECORATION_DROPPED = "decoration_dropped"

Time = datetime | None


@dataclass(frozen=True, slots=True)
class Kind:
    """What an event type asks of an event."""

    type: EventType
    completes: bool
    of_batch: bool
    needs_batch: bool


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """What reading an event needs of its profile."""

    name: str
    terminal: frozenset[str]
    find_event_type: Callable[[str], EventType | None]


class Parser:
    """Reads events in the vocabulary of the given profiles."""

    def __init__(self, profiles: ProfileSet) -> None:
        self._vocabularies = {
            source: _vocabulary(profile) for source, profile in (*profiles.by_source.items(), *profiles.by_name.items())
        }

    def parse(self, value: bytes | None, headers: Iterable[tuple[str, bytes | None]] = ()) -> Parsed:
        """Read one record; never raises for what is in it. Headers decide on the form: plain JSON or CloudEvents."""
        if value is None:
            return TOMBSTONE
        try:
            wire.check_bytes(value)
            if not headers:
                event, dropped = wire.read_event(value)
                return self._build_plain(value, event, dropped)
            return self._read(value, cloudevents.select_headers(headers))
        except Refused as refused:
            return refused.letter

    def _read(self, value: bytes, headers: dict[str, str]) -> JobEvent:
        if cloudevents.is_structured(headers):
            return self._build_unwrapped(cloudevents.unwrap_structured(value, headers))
        if cloudevents.is_binary(headers):
            return self._build_unwrapped(cloudevents.unwrap_binary(value, headers))
        event, dropped = wire.read_event(value)
        return self._build_plain(value, event, dropped, cloudevents.find_trace(headers))

    def _build_plain(self, value: bytes, event: WireEvent, dropped: int, trace: str | None = None) -> JobEvent:
        word, source = event.event_type, event.source or NATIVE
        if word is None:
            raise _no_type(value)
        vocabulary = self._vocabularies.get(source) or _unknown_source(source)
        kind = KINDS.get(word) or _unknown_type(word)
        return _build_event(event, vocabulary, kind, dropped, trace)

    def _build_unwrapped(self, unwrapped: cloudevents.Unwrapped) -> JobEvent:
        event = unwrapped.event
        word, source = event.event_type or "", event.source or ""
        vocabulary = self._vocabularies.get(source) or _unknown_source(source)
        type_ = vocabulary.find_event_type(word)
        kind = KINDS[type_] if type_ else _unknown_type(word)
        return _build_event(event, vocabulary, kind, unwrapped.dropped, unwrapped.trace)


def _vocabulary(profile: Profile) -> Vocabulary:
    terminal = frozenset(word for word, public in profile.status.items() if public in TERMINAL_WORDS)
    return Vocabulary(profile.name, terminal, profile.find_event_type)


def _build_event(event: WireEvent, vocabulary: Vocabulary, kind: Kind, dropped: int, trace: str | None) -> JobEvent:
    tenant_id, job_id, occurred_at = event.tenant_id, "" if kind.of_batch else event.job_id, event.occurred_at
    if tenant_id is None or not tenant_id.isprintable() or tenant_id in DOTS:
        tenant_id = _name("tenant_id", tenant_id)
    if job_id is None or not job_id.isprintable() or job_id in DOTS:
        job_id = _name("job_id", job_id)
    if occurred_at is None or not _settled(occurred_at):
        occurred_at = _occurred_at(occurred_at)
    if kind.completes and event.status not in vocabulary.terminal:
        raise _unknown_status(event.status)
    created_at, started_at, completed_at = event.created_at, event.started_at, event.completed_at
    if not (_settled(created_at) and _settled(started_at) and _settled(completed_at)):
        created_at, started_at, completed_at, shed = _in_utc(created_at, started_at, completed_at)
        dropped += shed
    message, url, metadata = event.error_message or None, event.result_url or None, None
    if not ((message is None or message.isascii()) and (url is None or url.isascii())):
        message, url, shed = _fit_bytes(message, url)
        dropped += shed
    if event.metadata is not UNSET:
        metadata, shed = _metadata(event.metadata)
        dropped += shed
    return JobEvent(
        event.event_id or _missing("event_id"), kind.type, vocabulary.name, occurred_at, tenant_id, job_id,
        _batch(event.batch, kind), event.generation, event.attempts, event.stage or None, event.status or None,
        event.kind or None, event.subject_id or None, event.subject_status or None, event.error_code or None,
        message, created_at, started_at, completed_at, event.previous_job_id or None, event.webhook_id or None,
        event.webhook_url or None, url, metadata, (DECORATION_DROPPED,) * dropped if dropped else (), False,
        trace,
    )  # fmt: skip


def _unknown_source(source: str) -> Vocabulary:
    raise Refused(Reason.UNKNOWN_SOURCE, f"no profile for {quoted(source)}")


def _no_type(value: bytes) -> Refused:
    if not cloudevents.is_envelope(value):
        return Refused(Reason.SCHEMA, "event_type is missing")
    return Refused(Reason.SCHEMA, f"is a CloudEvent, but its content-type is not {cloudevents.STRUCTURED}")


def _unknown_type(word: str) -> Kind:
    raise Refused(Reason.UNKNOWN_TYPE, f"no event type {quoted(word)}")


def _unknown_status(word: str | None) -> Refused:
    detail = "job.completed without a status" if word is None else f"{quoted(word)} ends no job"
    return Refused(Reason.UNKNOWN_STATUS, detail)


def _missing(field: str) -> str:
    raise Refused(Reason.SCHEMA, f"{field} is missing")


def _name(field: str, text: str | None) -> str:
    if text is None:
        return _missing(field)
    if text in DOTS:
        raise Refused(Reason.SCHEMA, f"{field} may not be . or ..")
    if not is_name(text):
        raise Refused(Reason.SCHEMA, f"{field} holds a control character")
    return text


def _batch(batch: WireBatch | None, kind: Kind) -> BatchRef | None:
    if batch is None:
        if kind.needs_batch:
            raise Refused(Reason.SCHEMA, f"{kind.type} needs a batch")
        return None
    name, producer_id = batch.name, batch.id
    if not name.isprintable() or name in DOTS:
        name = _name("batch.name", name)
    if producer_id is not None:
        producer_id = _name("batch.id", producer_id)
    return BatchRef(name, producer_id, batch.total, batch.version or 0)


def _occurred_at(time: Time) -> datetime:
    if time is None:
        raise Refused(Reason.SCHEMA, "occurred_at is missing")
    instant = in_utc(time)
    if instant is None:
        raise Refused(Reason.SCHEMA, "occurred_at is outside the years 1 to 9999, or their first or last instant")
    return instant


def _settled(time: Time) -> bool:
    return time is None or (time.tzinfo is UTC and EARLIEST <= time <= LATEST)


def _in_utc(*given: Time) -> tuple[Time, Time, Time, int]:
    """The decorating times in UTC, and how many of them had to go."""
    created_at, started_at, completed_at = (time and in_utc(time) for time in given)
    gone = (created_at, started_at, completed_at).count(None) - given.count(None)
    return created_at, started_at, completed_at, gone


def _fit_bytes(message: str | None, url: str | None) -> tuple[str | None, str | None, int]:
    """The message cut, the URL dropped, where their UTF-8 is over the bound, and how often that was."""
    short = message and wire.cut_bytes(message)
    fits = url is None or len(url.encode()) <= wire.MAX_URL_BYTES
    return short, url if fits else None, (short != message) + (not fits)


def _metadata(raw: Raw) -> tuple[str | None, bool]:
    """The text of an object that is small enough, byte for byte, and whether there was something else."""
    text = str(raw, "utf-8")
    if text[0] == "{" and len(text) <= wire.MAX_METADATA_BYTES and (text.isascii() or _fits(text)):
        return text, False
    return None, text != "null"


def _fits(text: str) -> bool:
    return len(text.encode()) <= wire.MAX_METADATA_BYTES


def _kind(type_: EventType) -> Kind:
    of_batch = type_ in (EventType.BATCH_SEALED, EventType.BATCH_DELETED)
    return Kind(type_, type_ is EventType.JOB_COMPLETED, of_batch, of_batch or type_ is EventType.JOB_REMOVED)


KINDS = {type_.value: _kind(type_) for type_ in EventType}
