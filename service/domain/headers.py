"""Custom headers of a webhook: which are accepted at registration, and which are dropped again at send.

Belongs here: names and values as text. Does not belong here: the headers that we send ourselves (``service.delivery``)
and encryption at rest (``service.sealing``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAX_HEADERS: Final = 20
MAX_NAME_BYTES: Final = 256
MAX_VALUE_BYTES: Final = 4_096

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")  # token, RFC 9110, section 5.6.2
_VALUE: Final = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")  # field-value without obs-text, RFC 9110, section 5.5

OWN_HEADERS: Final = frozenset({"accept-encoding", "content-type", "traceparent", "tracestate", "user-agent"})
FRAMING_HEADERS: Final = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "cookie",
        "expect",
        "host",
        "http2-settings",
        "keep-alive",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
RESERVED_HEADERS: Final = OWN_HEADERS | FRAMING_HEADERS
RESERVED_PREFIXES: Final = ("webhook-", "svix-", "ce-", "proxy-")
RESERVED_SUFFIX: Final = "-signature"


@dataclass(frozen=True, slots=True)
class HeaderProblem:
    """One refused header: its ``name`` as given (cut to 256 characters, empty for the whole set) and why."""

    name: str
    reason: str


def is_reserved(name: str) -> bool:
    """True for a name that no custom header may have, in any case and with any white space around it.

    To a receiver behind CGI or WSGI, ``_`` is ``-`` (RFC 3875, section 4.1.18): both spellings are one header there.
    """
    bare = name.strip().lower().replace("_", "-")
    return bare in RESERVED_HEADERS or bare.startswith(RESERVED_PREFIXES) or bare.endswith(RESERVED_SUFFIX)


def find_header_problems(headers: Mapping[str, object]) -> tuple[HeaderProblem, ...]:
    """Everything that is wrong with these headers; empty when they may be stored.

    Values may be of any type: what is no text is refused with the header's name.
    """
    problems = [HeaderProblem("", f"at most {MAX_HEADERS} custom headers")] if len(headers) > MAX_HEADERS else []
    seen: set[str] = set()
    for name, value in headers.items():
        reason = _find_name_problem(name, seen) or _find_value_problem(value)
        if reason:
            problems.append(HeaderProblem(name[:MAX_NAME_BYTES], reason))
        seen.add(name.lower())
    return tuple(problems)


def merge_headers(headers: Iterable[tuple[str, str]], patch: Mapping[str, str | None]) -> tuple[tuple[str, str], ...]:
    """The headers after a merge patch (RFC 7396): null takes one away, and what is not named stays; case does not count."""
    named = {name.lower() for name in patch}
    kept = [(name, value) for name, value in headers if name.lower() not in named]
    return (*kept, *((name, value) for name, value in patch.items() if value is not None))


def list_sendable(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """The stored headers that may go on the wire, in the case given.

    The rules of registration are applied once more: a row written by older code, or by hand, overrides nothing.
    """
    return [
        (name, value) for name, value in headers if not (_find_name_problem(name, ()) or _find_value_problem(value))
    ]


def _find_name_problem(name: str, seen: Iterable[str]) -> str | None:
    if is_reserved(name):
        return "this header belongs to the service or to the connection"
    if not _NAME.fullmatch(name):
        return "a header name is made of letters, digits and !#$%&'*+-.^_`|~ only"
    if len(name) > MAX_NAME_BYTES:
        return f"a header name has at most {MAX_NAME_BYTES} characters"
    if name.lower() in seen:
        return "this header is given twice (case does not count)"
    return None


def _find_value_problem(value: object) -> str | None:
    if not isinstance(value, str):
        return "a header value is a string"
    if len(value) > MAX_VALUE_BYTES:
        return f"a header value has at most {MAX_VALUE_BYTES} bytes"
    if not _VALUE.fullmatch(value):
        return "a header value is visible ASCII with spaces or tabs inside, no control characters, no outer white space"
    return None
