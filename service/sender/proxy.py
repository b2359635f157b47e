"""The egress proxy: a tunnel by CONNECT to an address that the guard has checked (RFC 9110 9.3.6).

A proxy that cannot be reached, refuses us (407) or misbehaves is our own fault. One that says that it could not reach the
receiver (502, 503, 504), or will not go there (403 and its like), speaks of the receiver: otherwise a dead or forbidden
one would be tried for ever, alert operators, and let everybody wait.
"""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from urllib.parse import unquote, urlsplit

from service.domain.attempts import OutcomeClass, OwnFault
from service.domain.outbound import Hop
from service.sender.answers import AnswerReader, State
from service.sender.failures import Failure

_FAULT = "egress_proxy"
_DEFAULT_PORT = 3128
_RECEIVER_FAILED = {
    502: Failure(OutcomeClass.CONNECT_ERROR, "proxy_502"),
    503: Failure(OutcomeClass.CONNECT_ERROR, "proxy_503"),
    504: Failure(OutcomeClass.CONNECT_TIMEOUT, "proxy_504"),
}
_NOT_US = 407
_FORBIDDEN = frozenset(range(400, 500)) - {_NOT_US}
_READ_SIZE = 4096
_FIRST_SUCCESS, _FIRST_REDIRECT = 200, 300


@dataclass(frozen=True, slots=True)
class Proxy:
    """Where the egress proxy listens; ``authorization`` is a whole header line, or empty."""

    host: str
    port: int
    authorization: bytes = b""


def parse_proxy(url: str) -> Proxy | None:
    """``http://[user:password@]host:port``, or None for an empty text; raises ValueError without the password."""
    if not url:
        return None
    parts = urlsplit(url)
    if parts.scheme != "http" or not parts.hostname or parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("EGRESS_PROXY must look like http://host:port")
    authorization = b""
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = b"proxy-authorization: Basic " + base64.b64encode(user.encode()) + b"\r\n"
    return Proxy(parts.hostname, parts.port or _DEFAULT_PORT, authorization)


def follow_proxy(url: Callable[[], str]) -> Callable[[], Proxy | None]:
    """The proxy that ``url`` names at each dial: its password, or the proxy itself, may change."""
    parse = lru_cache(1)(parse_proxy)
    return lambda: parse(url())


async def reach_proxy(proxy: Proxy) -> socket.socket:
    """A TCP connection to the proxy; raises ``OwnFault``. The caller bounds the time."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(proxy.host, proxy.port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise OwnFault(_FAULT, f"name: {error}") from error
    problem = "no address"
    for family, _, _, _, address in found:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            with closed_on_error(sock):
                await loop.sock_connect(sock, address)
        except OSError as error:
            problem = str(error)
        else:
            return sock
    raise OwnFault(_FAULT, problem)


@contextmanager
def closed_on_error(sock: socket.socket) -> Iterator[None]:
    """Close the socket when the block fails or is cancelled."""
    try:
        yield
    except BaseException:
        sock.close()
        raise


async def open_tunnel(sock: socket.socket, proxy: Proxy, hop: Hop) -> Failure | None:
    """Ask the proxy for a tunnel to the checked address; raises ``OwnFault``. The caller bounds the time."""
    loop = asyncio.get_running_loop()
    where = f"[{hop.address}]:{hop.port}" if ":" in hop.address else f"{hop.address}:{hop.port}"
    answer = AnswerReader()
    try:
        await loop.sock_sendall(
            sock, f"CONNECT {where} HTTP/1.1\r\nhost: {where}\r\n".encode() + proxy.authorization + b"\r\n"
        )
        while answer.state is State.HEAD:
            data = await loop.sock_recv(sock, _READ_SIZE)
            answer.feed(data) if data else answer.end()
    except OSError as error:
        raise OwnFault(_FAULT, str(error)) from error
    return _judge_tunnel(answer)


def _judge_tunnel(answer: AnswerReader) -> Failure | None:
    if answer.state is State.BROKEN:
        raise OwnFault(_FAULT, f"no valid answer to CONNECT: {answer.problem}")
    if _FIRST_SUCCESS <= answer.status < _FIRST_REDIRECT:
        if answer.body_bytes or answer.surplus:
            raise OwnFault(_FAULT, "bytes before the tunnel was used")
        return None
    failure = _RECEIVER_FAILED.get(answer.status)
    if failure is None and answer.status in _FORBIDDEN:
        failure = Failure(OutcomeClass.CONNECT_ERROR, f"proxy_{answer.status}")
    if failure is None:
        raise OwnFault(_FAULT, f"CONNECT was answered with {answer.status}")
    return failure
