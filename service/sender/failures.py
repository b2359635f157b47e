"""Why there was no answer, as a value; and which errors of the system are our own fault.

Belongs here: the sorting of ``OSError`` and ``ssl.SSLError`` into chapter 3's classes.
"""

from __future__ import annotations

import errno
import socket
import ssl
from typing import NamedTuple

from service.domain.attempts import OutcomeClass, OwnFault


class Failure(NamedTuple):
    """An attempt without an answer: its class and a short fixed word for operators."""

    kind: OutcomeClass
    detail: str = ""


_OWN = {
    errno.EMFILE: "descriptors",
    errno.ENFILE: "descriptors",
    errno.ENOBUFS: "memory",
    errno.ENOMEM: "memory",
    errno.EADDRNOTAVAIL: "local_ports",
}
_CONNECT_WORDS = {
    errno.ECONNREFUSED: "refused",
    errno.ECONNRESET: "reset",
    errno.EHOSTUNREACH: "unreachable",
    errno.ENETUNREACH: "unreachable",
    errno.EPERM: "forbidden",
    errno.EACCES: "forbidden",
}
# X509_V_ERR_* of OpenSSL's x509_vfy.h.
_CERTIFICATE_WORDS = {
    9: "expired",  # not valid yet
    10: "expired",
    18: "self-signed",
    2: "chain",  # issuer unknown
    19: "chain",  # a root that we do not trust
    20: "chain",
    21: "chain",
    62: "name",
    63: "name",
    64: "name",
}
_PROTOCOL_REASONS = ("PROTOCOL", "VERSION", "HANDSHAKE_FAILURE", "CIPHER", "HTTP_REQUEST", "PACKET_LENGTH", "RECORD")


def raise_own_fault(error: OSError) -> None:
    """Raise ``OwnFault`` when the error says that this machine ran out of something; return otherwise."""
    word = _OWN.get(error.errno or 0)
    if word is not None:
        raise OwnFault(word, str(error)) from error


def probe_descriptors() -> None:
    """Raise ``OwnFault`` when no socket can be opened: libraries report that as trouble on the network."""
    try:
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()
    except OSError as error:
        raise_own_fault(error)


def connect_failure(error: OSError) -> Failure:
    """What a failed TCP connect means; raises ``OwnFault``."""
    raise_own_fault(error)
    if isinstance(error, TimeoutError):
        return Failure(OutcomeClass.CONNECT_TIMEOUT, "tcp")
    return Failure(OutcomeClass.CONNECT_ERROR, _CONNECT_WORDS.get(error.errno or 0, "other"))


def tls_failure(error: OSError) -> Failure:
    """What a failed TLS handshake means: expired, name, self-signed, chain, protocol or other; raises ``OwnFault``."""
    raise_own_fault(error)
    if isinstance(error, ssl.SSLCertVerificationError):
        return Failure(OutcomeClass.TLS_ERROR, _CERTIFICATE_WORDS.get(error.verify_code, "other"))
    reason = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    word = "protocol" if any(part in reason for part in _PROTOCOL_REASONS) else "other"
    return Failure(OutcomeClass.TLS_ERROR, word)


def lost_failure(error: BaseException | None, problem: str) -> Failure:
    """What the end of a connection means while an answer was due; ``problem`` is the reader's word."""
    if isinstance(error, ssl.SSLError) and problem == "closed":
        return tls_failure(error)  # TLS 1.3 reports a refused handshake with the first read
    if problem == "closed":
        return Failure(OutcomeClass.RESET, "closed" if error is None else "reset")
    kind = OutcomeClass.PROTOCOL_ERROR if error is None else OutcomeClass.RESET
    return Failure(kind, problem)
