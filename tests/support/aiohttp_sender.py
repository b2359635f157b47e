"""The reference for the conformance suite: the same seam over aiohttp's client, as well as that allows.

Where aiohttp's client is known to be wrong the suite says so; this adapter hides nothing.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from typing import Self

import aiohttp
from aiohttp.abc import AbstractResolver

from service.domain.attempts import Flag, Outcome, OutcomeClass
from service.domain.egress import EgressPolicy
from service.domain.outbound import OutboundRequest, Route
from service.sender.answers import MAX_EXCERPT
from service.sender.failures import Failure, connect_failure, tls_failure
from service.sender.guard import Guard
from service.sender.resolver import Lookup, Resolver, ResolverLimits
from service.sender.verdicts import _KINDS, failed


class _Pinned(AbstractResolver):
    """Gives the addresses that the guard has checked."""

    def __init__(self) -> None:
        self.routes: dict[tuple[str, int], Route] = {}

    async def resolve(self, host, port=0, family=0):
        return [
            {"hostname": host, "host": hop.address, "port": port, "family": family, "proto": 0, "flags": 0}
            for hop in self.routes[host, port].hops
        ]

    async def close(self) -> None:
        pass


class AiohttpSender:
    """``send(request, deadline) -> Outcome`` over ``aiohttp.ClientSession``."""

    def __init__(self, policy: EgressPolicy, lookup: Lookup, tls: ssl.SSLContext) -> None:
        self._guard = Guard(policy, Resolver(lookup, ResolverLimits(), time.monotonic), time.monotonic)
        self._tls = tls
        self._pinned = _Pinned()

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls, resolver=self._pinned, use_dns_cache=False)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False, trust_env=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def send(self, request: OutboundRequest, deadline: float) -> Outcome:
        target = request.target
        route = await self._guard.locate(target, request.tenant_id, deadline)
        if isinstance(route, Failure):
            return failed(route)
        self._pinned.routes[target.host, target.port] = route
        started = time.monotonic()
        try:
            async with asyncio.timeout(deadline - started):
                return await self._post(request, started, route.address)
        except Exception as error:  # noqa: BLE001
            return failed(_sort(error), route.address, time.monotonic() - started)

    async def _post(self, request: OutboundRequest, started: float, address: str) -> Outcome:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=request.connect_timeout)
        head, target = request.target.head.decode(), request.target
        url = target.origin + head.split(" ")[1]
        lines = request.headers.decode().splitlines()
        headers = [*(line.split(": ", 1) for line in lines), ("accept-encoding", "identity")]
        async with self._session.post(
            url, data=request.body, headers=headers, allow_redirects=False, timeout=timeout
        ) as response:
            duration = time.monotonic() - started
            excerpt, flags = await self._read(response)
        kind = _KINDS[response.status]
        retry_after = () if kind is OutcomeClass.DELIVERED else tuple(response.headers.getall("retry-after", ()))
        return Outcome(kind, response.status, "", retry_after, excerpt, flags, duration, address)

    async def _read(self, response: aiohttp.ClientResponse) -> tuple[bytes, frozenset[Flag]]:
        excerpt, flags = b"", set()
        try:
            async with asyncio.timeout(0.5):
                while len(excerpt) <= MAX_EXCERPT and (piece := await response.content.read(MAX_EXCERPT + 1)):
                    excerpt += piece
        except (aiohttp.ClientError, TimeoutError):
            flags.add(Flag.BODY_INCOMPLETE)
        if len(excerpt) > MAX_EXCERPT:
            flags.add(Flag.BODY_CUT)
            response.close()
        return excerpt[:MAX_EXCERPT], frozenset(flags)


def _sort(error: Exception) -> Failure:
    match error:
        case aiohttp.ConnectionTimeoutError():
            return Failure(OutcomeClass.CONNECT_TIMEOUT, "tcp")
        case TimeoutError():
            return Failure(OutcomeClass.TIMEOUT)
        case aiohttp.ClientConnectorCertificateError():
            return tls_failure(error.certificate_error)
        case aiohttp.ClientSSLError():
            return tls_failure(error.os_error)
        case aiohttp.ClientConnectorError():
            return connect_failure(error.os_error)
        case aiohttp.ServerDisconnectedError() | ConnectionError() | aiohttp.ClientOSError():
            return Failure(OutcomeClass.RESET, "closed")
        case _:
            return Failure(OutcomeClass.PROTOCOL_ERROR, "")
