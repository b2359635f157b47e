"""One POST as a value: what delivery hands to the sender.

Belongs here: the request, the way to its receiver, and header lines as bytes. Does not belong here: signing
(``signing``), the verdict on the way (``targets``), sockets (``service.sender``).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from service.domain.headers import FRAMING_HEADERS
from service.domain.targets import Target

DEFAULT_CONNECT_TIMEOUT = 5.0


class Hop(NamedTuple):
    """One checked address of a receiver; also what a kept connection is found by."""

    host: str
    port: int
    address: str
    tls: bool


@dataclass(frozen=True, slots=True)
class Route:
    """The checked addresses of a receiver in the order to try them, good until ``fresh_until`` (monotonic seconds)."""

    hops: tuple[Hop, ...]
    fresh_until: float

    @property
    def address(self) -> str:
        """The address that is tried first, for caps per shared address."""
        return self.hops[0].address


@dataclass(slots=True)
class OutboundRequest:
    """One POST.

    ``headers`` are whole lines as they go on the wire, each with its CRLF; the fixed ones of a webhook are made once, by
    ``compile_headers``. The sender adds ``host``, ``accept-encoding`` and ``content-length``. ``connect_timeout`` is in
    seconds and covers TCP and TLS. ``route`` saves a look-up when the guard was asked just before.
    """

    target: Target
    headers: bytes
    body: bytes
    tenant_id: str = ""
    connect_timeout: float = DEFAULT_CONNECT_TIMEOUT
    route: Route | None = None


# What only the sender writes: RFC 9112 6 (framing), RFC 9110 7.6.1 (hop by hop), and that it wants no compression.
SENDER_HEADERS = FRAMING_HEADERS | {"accept-encoding", "proxy-authorization", "proxy-connection"}
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110 5.6.2, token
_BAD_IN_VALUE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")  # RFC 9110 5.5


def compile_headers(headers: Iterable[tuple[str, str]]) -> bytes:
    """Header lines as they go on the wire, in the case given; may be kept and used for many requests.

    Headers that only the sender writes are left out; a webhook's own custom headers come through
    ``headers.list_sendable`` first. Raises ValueError, naming the header, for a name that is no token (RFC 9110 5.6.2)
    or a value with a control character in it (RFC 9110 5.5).
    """
    return b"".join(_compile_header(name, value) for name, value in headers if not _is_the_senders(name))


def _is_the_senders(name: str) -> bool:
    return name.strip().lower() in SENDER_HEADERS


def _compile_header(name: str, value: str) -> bytes:
    if not _NAME.fullmatch(name):
        raise ValueError(f"header name {name!r} is not a token")
    if _BAD_IN_VALUE.search(value):
        raise ValueError(f"the value of header {name!r} has a control character in it")
    return f"{name}: {value}\r\n".encode()
