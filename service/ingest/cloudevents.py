"""The CloudEvents forms of a job event: an envelope in the value (structured) or in the headers (binary).

Belongs here: recognising a form and reading its envelope. Does not belong here: what the words in it mean (parsing).
CloudEvents 1.0.2, JSON event format section 3; Kafka protocol binding sections 3.1 to 3.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw, Struct

from service.domain.traces import parse_trace
from service.ingest.poison import Reason, Refused
from service.ingest.wire import Name, Time, WireEvent, check_bytes, read_event, split_object

STRUCTURED = "application/cloudevents+json"
BATCHED = "application/cloudevents-batch+json"
_PREFIX = "ce_"
_TRACING = frozenset({"traceparent", "tracestate", "ce_traceparent", "ce_tracestate"})

Text = Annotated[str, Meta(min_length=1)]


class Envelope(Struct, gc=False):
    """The context attributes that a job event takes, and its ``data``."""

    id: Name
    type: Text
    source: Text
    time: Time | None = None
    traceparent: Any = None
    tracestate: Any = None
    data: Raw = Raw(b"{}")


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """An event with the envelope's fields in place; ``source`` and ``event_type`` are still the envelope's words."""

    event: WireEvent
    dropped: int
    trace: str | None


def select_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Return the headers that matter, names in lower case; the last of equal names. Raises Refused.

    Those of a trace context never refuse an event: what is no ASCII cannot be one and reads as something malformed.
    """
    found = {}
    for name, value in headers:
        key = name.lower()
        if value is None:
            continue
        if key in _TRACING:
            found[key] = value.decode("ascii", "replace")
        elif key.startswith(_PREFIX) or key == "content-type":
            found[key] = _decode(key, value)
    return found


def is_envelope(value: bytes) -> bool:
    """Whether a JSON object is an event in structured mode, whatever its headers say. Raises Refused."""
    return "specversion" in split_object(value)


def find_id(value: bytes, headers: Iterable[tuple[str, bytes | None]]) -> str | None:
    """Return the id of an event that was refused, in whatever form it came; None where there is none to be read."""
    try:
        check_bytes(value)
        chosen = select_headers(headers)
        structured = is_structured(chosen)
        if not structured and is_binary(chosen):
            return msgspec.convert(chosen.get("ce_id"), Name)
        return _id.decode(split_object(value)["id" if structured else "event_id"])
    except (Refused, KeyError, msgspec.DecodeError):
        return None


def find_trace(headers: Mapping[str, str]) -> str | None:
    """The trace context that came beside the event: what the transport's last hop says."""
    return parse_trace(headers.get("traceparent"), headers.get("tracestate"))


def is_structured(headers: dict[str, str]) -> bool:
    """True when the value is an envelope, whatever parameters the content type has. Raises Refused for a batch."""
    media_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type == BATCHED:
        raise Refused(Reason.SCHEMA, "a CloudEvents batch, not one event")
    return media_type == STRUCTURED


def is_binary(headers: dict[str, str]) -> bool:
    """True when the envelope is in the headers."""
    return "ce_specversion" in headers or "ce_id" in headers


def unwrap_structured(value: bytes, headers: Mapping[str, str]) -> Unwrapped:
    """Read an event from its envelope. Raises Refused."""
    try:
        envelope = _envelope.decode(value)
    except (msgspec.DecodeError, RecursionError) as error:
        split_object(value)  # says it if this is no JSON or no object
        raise Refused(Reason.SCHEMA, f"CloudEvents envelope: {error}") from None
    return _merge(envelope, bytes(envelope.data), headers)


def unwrap_binary(value: bytes, headers: Mapping[str, str]) -> Unwrapped:
    """Read an event whose envelope is in the headers. Raises Refused."""
    attributes = {name.removeprefix(_PREFIX): text for name, text in headers.items() if name.startswith(_PREFIX)}
    attributes.pop("data", None)
    try:
        envelope = msgspec.convert(attributes, Envelope)
    except msgspec.ValidationError as error:
        raise Refused(Reason.SCHEMA, f"CloudEvents headers: {error}") from None
    return _merge(envelope, value, headers)


def _merge(envelope: Envelope, data: bytes, headers: Mapping[str, str]) -> Unwrapped:
    event, dropped = read_event(b"{}" if data == b"null" else data)
    event.event_id = envelope.id
    event.event_type = envelope.type
    event.source = envelope.source
    event.occurred_at = _choose_time(envelope, event)
    return Unwrapped(event, dropped, _find_extension(envelope) or find_trace(headers))


def _find_extension(envelope: Envelope) -> str | None:
    """The distributed tracing extension: the context in which the event was made, which wins over a hop's header."""
    return parse_trace(_text(envelope.traceparent), _text(envelope.tracestate)) if envelope.traceparent else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _choose_time(envelope: Envelope, event: WireEvent) -> datetime | None:
    return event.occurred_at if envelope.time is None else envelope.time


def _decode(name: str, value: bytes) -> str:
    try:
        text = value.decode()
    except UnicodeDecodeError:
        raise Refused(Reason.INVALID_UTF8, f"header {name} is not UTF-8") from None
    if "\0" in text:
        raise Refused(Reason.SCHEMA, f"header {name} holds a NUL")
    return text


_envelope = msgspec.json.Decoder(Envelope)
_id: msgspec.json.Decoder[str] = msgspec.json.Decoder(Name)
