"""Making a connection to a checked address, directly or through the egress proxy, with TLS when the target wants it.

Belongs here: sockets until they are connections. Does not belong here: which addresses may be dialled (``guard``).
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable
from ipaddress import ip_address

from service.domain.attempts import OutcomeClass, OwnFault
from service.domain.outbound import Hop, Route
from service.sender.connections import Connection
from service.sender.failures import Failure, connect_failure, tls_failure
from service.sender.proxy import Proxy, closed_on_error, open_tunnel, reach_proxy

MAX_HOPS = 4
_SHUTDOWN_SECONDS = 1.0


class Dialer:
    """Dials the addresses of a route in order; each gets an equal share of the time that is left."""

    def __init__(
        self,
        tls: ssl.SSLContext,
        proxy: Callable[[], Proxy | None],
        build_connection: Callable[[Hop], Connection],
        clock: Callable[[], float],
    ) -> None:
        self._tls = tls
        self._proxy = proxy
        self._build_connection = build_connection
        self._clock = clock

    async def dial(self, route: Route, until: float) -> Connection | Failure:
        """A fresh connection, or why there is none by ``until`` (seconds of the clock); raises ``OwnFault``.

        After a TLS failure no other address is tried: they are one receiver.
        """
        failure = Failure(OutcomeClass.CONNECT_TIMEOUT, "tcp")
        hops = route.hops[:MAX_HOPS]
        for index, hop in enumerate(hops):
            seconds = (until - self._clock()) / (len(hops) - index)
            if seconds <= 0:
                break
            dialled = await self._dial_hop(hop, seconds)
            if not isinstance(dialled, Failure):
                return dialled
            failure = dialled
            if failure.kind is OutcomeClass.TLS_ERROR:
                break
        return failure

    async def _dial_hop(self, hop: Hop, seconds: float) -> Connection | Failure:
        until = self._clock() + seconds
        sock = await self._reach(hop, seconds)
        if isinstance(sock, Failure):
            return sock
        with closed_on_error(sock):
            try:
                async with asyncio.timeout(until - self._clock()):
                    started = await self._start(sock, hop)
            except TimeoutError:
                started = Failure(OutcomeClass.CONNECT_TIMEOUT, "tls" if hop.tls else "tcp")
        if isinstance(started, Failure):
            sock.close()
        return started

    async def _reach(self, hop: Hop, seconds: float) -> socket.socket | Failure:
        proxy = self._proxy()
        if proxy is not None:
            return await self._reach_through(proxy, hop, seconds)
        family = socket.AF_INET6 if ":" in hop.address else socket.AF_INET
        try:
            sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            with closed_on_error(sock):
                async with asyncio.timeout(seconds):
                    await asyncio.get_running_loop().sock_connect(sock, (hop.address, hop.port))
                _check_peer(sock, hop)
        except OSError as error:
            return connect_failure(error)
        return sock

    async def _reach_through(self, proxy: Proxy, hop: Hop, seconds: float) -> socket.socket | Failure:
        try:
            async with asyncio.timeout(seconds):
                sock = await reach_proxy(proxy)
        except TimeoutError:
            raise OwnFault("egress_proxy", "no connection in time") from None
        with closed_on_error(sock):
            try:
                async with asyncio.timeout(seconds):
                    failure = await open_tunnel(sock, proxy, hop)
            except TimeoutError:
                failure = Failure(OutcomeClass.CONNECT_TIMEOUT, "proxy")
        if failure is None:
            return sock
        sock.close()
        return failure

    async def _start(self, sock: socket.socket, hop: Hop) -> Connection | Failure:
        """Hand the socket to the event loop; with TLS, this is the handshake."""
        loop = asyncio.get_running_loop()
        try:
            if hop.tls:
                _, connection = await loop.create_connection(
                    lambda: self._build_connection(hop),
                    sock=sock,
                    ssl=self._tls,
                    server_hostname=hop.host,
                    ssl_shutdown_timeout=_SHUTDOWN_SECONDS,
                )
            else:
                _, connection = await loop.create_connection(lambda: self._build_connection(hop), sock=sock)
        except TimeoutError:
            raise
        except OSError as error:
            return tls_failure(error) if hop.tls else connect_failure(error)
        return connection


def _check_peer(sock: socket.socket, hop: Hop) -> None:
    """The last line of the guard: the socket's own word for whom it reached; raises OSError.

    Also refuses the socket that connected to itself, which Linux allows on loopback.
    """
    address, port = sock.getpeername()[:2]
    if ip_address(address) != ip_address(hop.address) or port != hop.port:
        raise ConnectionError(f"dialled {hop.address} port {hop.port}, reached {address} port {port}")
    if sock.getsockname()[:2] == (address, port):
        raise ConnectionRefusedError(errno.ECONNREFUSED, "the socket reached itself")
