"""A job event as JSON: its fields, their types and bounds (chapter 2), and saving what can be saved of a bad one.

Belongs here: bytes -> ``WireEvent``. Does not belong here: rules that need a profile or more than one field (parsing)
and the CloudEvents forms (cloudevents).

The strict decoder takes almost every event. What it refuses is read again field by field, so that a bad decoration is
dropped or cut and only a bad vital field costs the record.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from service.domain.names import MAX_NAME
from service.ingest.poison import Reason, Refused

MAX_RECORD_BYTES = 1 << 20
MAX_METADATA_BYTES = 4096
MAX_MESSAGE_BYTES = 1024
MAX_URL_BYTES = 2048
WORD_LENGTH = 255
INT32, INT63 = 2**31 - 1, 2**63 - 1

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME)]
Word = Annotated[str, Meta(max_length=WORD_LENGTH)]
Url = Annotated[str, Meta(max_length=MAX_URL_BYTES)]
Time = Annotated[datetime, Meta(tz=True)]


class WireBatch(Struct, gc=False):
    """The ``batch`` object."""

    name: Name
    id: Name | None = None
    total: Annotated[int, Meta(ge=1, le=INT32)] | None = None
    version: Annotated[int, Meta(ge=0, le=INT63)] | None = None


class WireEvent(Struct, gc=False):
    """The event object. Every field may be absent here; which ones must not be is for parsing to say."""

    event_id: Name | None = None
    event_type: str | None = None
    source: str | None = None
    occurred_at: Time | None = None
    tenant_id: Name | None = None
    job_id: Name | None = None
    batch: WireBatch | None = None
    generation: Annotated[int, Meta(ge=1, le=INT32)] | None = None
    attempts: Annotated[int, Meta(ge=0, le=INT32)] | None = None
    webhook_id: Word | None = None
    webhook_url: Url | None = None
    # From here on decorations.
    stage: Word | None = None
    status: Word | None = None
    kind: Word | None = None
    subject_id: Word | None = None
    subject_status: Word | None = None
    error_code: Word | None = None
    error_message: Annotated[str, Meta(max_length=MAX_MESSAGE_BYTES)] | None = None
    created_at: Time | None = None
    started_at: Time | None = None
    completed_at: Time | None = None
    previous_job_id: Word | None = None
    result_url: Url | None = None
    metadata: Raw | UnsetType = UNSET


_FIELDS: dict[str, Any] = {field.encode_name: field.type for field in msgspec.structs.fields(WireEvent)}
_READERS = {name: msgspec.json.Decoder(type_) for name, type_ in _FIELDS.items()}
_TIMES = ("created_at", "started_at", "completed_at")
_DROPPED = ("kind", "subject_id", "previous_job_id", "result_url")
_CUT = {
    "stage": WORD_LENGTH,
    "status": WORD_LENGTH,
    "subject_status": WORD_LENGTH,
    "error_code": WORD_LENGTH,
    "error_message": MAX_MESSAGE_BYTES,
    # Not decorations: cut to what no registration has and no URL policy accepts, they fail where people look for it.
    "webhook_id": WORD_LENGTH + 1,
    "webhook_url": 2 * MAX_URL_BYTES,
}
_VITAL = tuple(name for name in _FIELDS if name not in (*_TIMES, *_DROPPED, *_CUT, "metadata"))

_strict = msgspec.json.Decoder(WireEvent)
_loose = msgspec.json.Decoder(dict[str, Raw])
_any = msgspec.json.Decoder(Raw)
_text = msgspec.json.Decoder(str)

_BACKSLASH = 0x5C
# Text in which no escape makes a NUL or half of a surrogate pair; possessive, so linear.
_SOUND_ESCAPES = re.compile(
    rb"(?:[^\\]++|\\(?:[^u]|\Z|u(?!0000|[dD][89a-fA-F])|u[dD][89abAB][\da-fA-F]{2}\\u[dD][c-fC-F][\da-fA-F]{2}))*+",
    re.DOTALL,
)
_LEAP_SECOND = re.compile(rb":60(?=[.Zz+-])")


def check_bytes(value: bytes) -> None:
    """Refuse what is too big, not UTF-8, or hides a NUL or a lone surrogate anywhere. Raises Refused."""
    if len(value) > MAX_RECORD_BYTES:
        raise Refused(Reason.OVERSIZE, f"{len(value)} bytes, at most {MAX_RECORD_BYTES}")
    if not value.isascii():
        _check_utf8(value)
    if _BACKSLASH in value and not _SOUND_ESCAPES.fullmatch(value):
        raise Refused(Reason.SCHEMA, "holds a NUL or a lone surrogate")


def _check_utf8(value: bytes) -> None:
    try:
        value.decode()
    except UnicodeDecodeError as error:
        raise Refused(Reason.INVALID_UTF8, f"byte {error.start} is not UTF-8") from None
    if value.startswith(b"\xef\xbb\xbf"):
        raise Refused(Reason.INVALID_JSON, "starts with a byte order mark")


def read_event(value: bytes) -> tuple[WireEvent, int]:
    """Decode an event whose bytes were checked; also the number of decorations dropped or cut. Raises Refused."""
    try:
        return _strict.decode(value), 0
    except (msgspec.DecodeError, RecursionError):
        return _salvage(split_object(value))


def split_object(value: bytes) -> dict[str, Raw]:
    """Return the members of a JSON object, each as the text it came in; of equal names the last. Raises Refused."""
    try:
        return _loose.decode(value)
    except msgspec.ValidationError:
        _check_json(value)
        raise Refused(Reason.SCHEMA, "is not an object") from None
    except msgspec.DecodeError as error:
        raise Refused(Reason.INVALID_JSON, str(error)) from None
    except RecursionError:
        raise Refused(Reason.SCHEMA, "is nested too deeply") from None


def _check_json(value: bytes) -> None:
    try:
        _any.decode(value)
    except msgspec.DecodeError as error:
        raise Refused(Reason.INVALID_JSON, str(error)) from None
    except RecursionError:
        raise Refused(Reason.SCHEMA, "is nested too deeply") from None


def _salvage(members: dict[str, Raw]) -> tuple[WireEvent, int]:
    event, lost = WireEvent(), 0
    for name, raw in members.items():
        if name in _VITAL:
            setattr(event, name, _read_vital(name, raw))
        elif name in _FIELDS:
            fits, found = _read_decoration(name, raw)
            setattr(event, name, found)
            lost += not fits
    return event, lost


def _read_vital(name: str, raw: Raw) -> object:
    if name == "occurred_at":
        return read_time(name, raw)
    try:
        return _READERS[name].decode(raw)
    except msgspec.DecodeError as error:
        raise Refused(Reason.SCHEMA, f"{name}: {error}") from None


def read_time(name: str, raw: Raw) -> datetime | None:
    """Decode an RFC 3339 time; a leap second is taken for the second before it. Raises Refused."""
    try:
        time: datetime | None = _READERS["occurred_at"].decode(_LEAP_SECOND.sub(b":59", bytes(raw)))
    except msgspec.DecodeError as error:
        raise Refused(Reason.SCHEMA, f"{name}: {error}") from None
    return time


def _read_decoration(name: str, raw: Raw) -> tuple[bool, object]:
    """Return whether a decoration is as it should be, and what is left of it."""
    if name == "metadata":
        return True, raw
    try:
        if name in _TIMES:
            return True, read_time(name, raw)
        return True, _READERS[name].decode(raw)
    except (msgspec.DecodeError, Refused):
        return False, _cut(name, raw) if name in _CUT else None


def _cut(name: str, raw: Raw) -> str | None:
    try:
        text = _text.decode(raw)[: _CUT[name]]
        return cut_bytes(text) if name == "error_message" else text
    except msgspec.DecodeError:
        if name in ("webhook_id", "webhook_url"):
            raise Refused(Reason.SCHEMA, f"{name} is not a string") from None
        return None


def cut_bytes(message: str) -> str:
    """Cut an ``error_message`` to its bound, after a whole code point."""
    return message.encode()[:MAX_MESSAGE_BYTES].decode(errors="ignore")
