"""What one HTTP attempt came to, as a value that the sender makes and the state table reads.

Belongs here: the closed set of outcome words (chapter 3, "What an answer means") and the record of one attempt.
Does not belong here: what happens next (``outcomes``) and how the attempt is made (``service.sender``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

UNREACHABLE: Final = "unreachable_name"


class OutcomeClass(StrEnum):
    """The closed set of words an attempt can end with; also the ``outcome`` label of ``attempts_total``."""

    DELIVERED = "delivered"
    HTTP_ERROR = "http_error"
    GONE = "gone"
    REDIRECT = "redirect"
    URL_REFUSED = "url_refused"  # refused for its form: fails at once
    DNS_ERROR = "dns_error"
    BLOCKED_ADDRESS = "blocked_address"  # refused for its address: retried, names move
    CONNECT_ERROR = "connect_error"
    CONNECT_TIMEOUT = "connect_timeout"
    TLS_ERROR = "tls_error"
    TIMEOUT = "timeout"
    RESET = "reset"
    PROTOCOL_ERROR = "protocol_error"


_ALIKE: Final = frozenset({OutcomeClass.DNS_ERROR.value, OutcomeClass.BLOCKED_ADDRESS.value})


def name_for_tenants(outcome: str) -> str:
    """Name an outcome: tenants cannot tell a name that does not resolve from one that is not allowed."""
    return UNREACHABLE if outcome in _ALIKE else outcome


def describe_for_tenants(error: str | None) -> str | None:
    """Show ``class detail``, as it is recorded; where tenants do not learn the class, nor the detail."""
    return UNREACHABLE if error is not None and error.partition(" ")[0] in _ALIKE else error


class Flag(StrEnum):
    """Oddities of an answer that never change its outcome."""

    BODY_INCOMPLETE = "body_incomplete"
    SURPLUS_BYTES = "surplus_bytes"
    BODY_CUT = "body_cut"
    REDIALED = "redialed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """One attempt, seen from outside.

    ``status`` is the receiver's status code, or None when there was no valid answer. ``detail`` is a short fixed word
    (for ``tls_error``: expired, name, self-signed, chain, protocol, other). ``retry_after`` holds the raw header
    values of a failure, unparsed. ``excerpt`` is at most 4 KiB of the answer's body, as received. ``duration`` is
    seconds on the monotonic clock from the first byte of connecting to the status line (or the failure).
    ``address`` is the peer that was dialled, for operators.
    """

    kind: OutcomeClass
    status: int | None = None
    detail: str = ""
    retry_after: tuple[str, ...] = ()
    excerpt: bytes = b""
    flags: frozenset[Flag] = frozenset()
    duration: float = 0.0
    address: str = ""

    @property
    def delivered(self) -> bool:
        """True when the receiver accepted: its status line said 200-299."""
        return self.kind is OutcomeClass.DELIVERED


class OwnFault(Exception):
    """Our own fault (no file descriptors, egress proxy down, key store broken): no attempt is recorded.

    ``kind`` is one word of the closed set of the ``own_faults_total`` metric.
    """

    def __init__(self, kind: str, detail: str = "") -> None:
        super().__init__(f"{kind}: {detail}" if detail else kind)
        self.kind = kind
        self.detail = detail


class TenantBusy(OwnFault):
    """A tenant has no share left of what we have for it: its delivery waits, nobody else does, and nobody is alerted."""
