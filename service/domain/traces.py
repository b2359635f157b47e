"""W3C trace context: which one an event brings, and what goes on to receivers.

Belongs here: judging the two headers and writing them anew. Everywhere else a context is one text, ``traceparent`` and,
after a space, ``tracestate`` if there is one, as ``parse_trace`` returns it. Does not belong here: spans
(``service.telemetry``) and where headers come from (``service.ingest``).
"""

from __future__ import annotations

import re
from typing import Final

MAX_STATE_MEMBERS: Final = 32
MAX_STATE_SIZE: Final = 512
LONG_MEMBER: Final = 128
SPAN_BYTES: Final = 8

_ORDINARY: Final = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-0[0-3]")
_PARENT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.DOTALL)
_MEMBER: Final = re.compile(
    r"(?:[a-z0-9][a-z0-9_\-*/]{0,255}|[a-z0-9][a-z0-9_\-*/]{0,240}@[a-z][a-z0-9_\-*/]{0,13})"
    r"=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]"
)
_KNOWN_FLAGS: Final = 0x03  # sampled, and the trace id is random
_NOTHING: Final = re.compile(r"0+")
_AFTER_ID: Final = slice(3, 35)


def parse_trace(parent: str | None, state: str | None = None) -> str | None:
    """Return the context of two header values, or None when there is none that counts.

    A ``traceparent`` of a later version is read as far as it is known and written as version 00; a bad ``tracestate``
    is left out without harm to the ``traceparent`` (W3C Trace Context, sections 3.2 and 3.3).
    """
    if not parent:
        return None
    context = parent if _ORDINARY.fullmatch(parent) else _parse_parent(parent)
    kept = _parse_state(state) if state and context else ""
    return f"{context} {kept}" if kept else context


def _parse_parent(parent: str) -> str | None:
    """The careful way, for flags and versions that are not known yet, and for what is no context."""
    found = _PARENT.fullmatch(parent)
    if found is None:
        return None
    version, trace_id, span_id, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or _NOTHING.fullmatch(trace_id) or _NOTHING.fullmatch(span_id):
        return None
    return f"00-{trace_id}-{span_id}-{int(flags, 16) & _KNOWN_FLAGS:02x}"


def _parse_state(state: str) -> str:
    members = [text for part in state.split(",") if (text := part.strip(" \t"))]
    keys = {member.partition("=")[0] for member in members}
    sound = len(keys) == len(members) <= MAX_STATE_MEMBERS and all(map(_MEMBER.fullmatch, members))
    return _cut(members) if sound else ""


def _cut(members: list[str]) -> str:
    """Leave out whole members where there is too much: long ones first, then from the end (section 3.3.1.5)."""
    while len(",".join(members)) > MAX_STATE_SIZE:
        long = [at for at, member in enumerate(members) if len(member) > LONG_MEMBER]
        del members[long[-1] if long else -1]
    return ",".join(members)


def trace_id_of(trace: str) -> str:
    """The 32 hexadecimal digits that all spans of a trace share."""
    return trace[_AFTER_ID]


def split_trace(trace: str) -> tuple[str, str]:
    """``traceparent`` and ``tracestate``; the second is empty where there is none."""
    parent, _, state = trace.partition(" ")
    return parent, state


def continue_trace(trace: str, span_id: bytes) -> str:
    """The same trace with a span of ours as the parent of what follows; 8 bytes, not all zero."""
    parent, _, state = trace.partition(" ")
    ours = f"{parent[:36]}{span_id.hex()}{parent[-3:]}"
    return f"{ours} {state}" if state else ours


def compile_trace(trace: str) -> bytes:
    """The header lines of a context."""
    parent, _, state = trace.partition(" ")
    lines = f"traceparent: {parent}\r\ntracestate: {state}\r\n" if state else f"traceparent: {parent}\r\n"
    return lines.encode()
