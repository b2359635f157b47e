"""Both senders behind one door: the product's, and aiohttp's client as the reference."""

from __future__ import annotations

import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from service.domain.attempts import Outcome
from service.domain.egress import EgressPolicy, parse_policy
from service.domain.outbound import OutboundRequest, compile_headers
from service.domain.targets import Target, parse_url
from service.sender import HttpSender, SenderLimits, build_tls_context
from service.sender.names import ascii_host
from service.sender.proxy import Proxy
from service.sender.resolver import Found
from tests.support.aiohttp_sender import AiohttpSender

BODY = b'{"type":"extraction.completed","data":{"name":"\xc3\xa9"}}'
HEADERS = (("content-type", "application/json"), ("webhook-id", "msg_1"), ("webhook-timestamp", "1795000000"))
LOOPBACK = "127.0.0.1/32 ::1/128"


@dataclass
class Names:
    """The look-up as a table; ``asked`` holds every question."""

    table: dict[str, tuple[str, ...]] = field(default_factory=dict)
    problem: str = "nxdomain"
    ttl: float = 300.0
    asked: list[str] = field(default_factory=list)

    async def __call__(self, name: str) -> Found:
        self.asked.append(name)
        known = self.table.get(name, ())
        return Found(known, self.ttl) if known else Found(problem=self.problem)

    async def close(self) -> None:
        pass


class Sender(Protocol):
    """The seam."""

    async def send(self, request: OutboundRequest, deadline: float) -> Outcome: ...


@dataclass
class Client:
    """A sender with its policy: ``post`` takes a URL."""

    sender: Sender
    policy: EgressPolicy
    product: bool

    async def post(
        self, url: str, *, seconds: float = 30.0, connect: float = 30.0, body: bytes = BODY, **more
    ) -> Outcome:
        target = parse_url(url, self.policy, more.get("tenant_id", ""))
        assert isinstance(target, Target), target
        headers = compile_headers(more.pop("headers", HEADERS))
        request = OutboundRequest(target, headers, body, connect_timeout=connect, **more)
        return await self.sender.send(request, time.monotonic() + seconds)


def loopback_policy(**more: str) -> EgressPolicy:
    """http, and the loopback addresses on every port."""
    ports = more.pop("ports", "1-65535")
    return parse_policy(
        allow_http=True, allow=LOOPBACK + more.pop("allow", ""), ports=ports, to_ascii=ascii_host, **more
    )


@contextlib.asynccontextmanager
async def open_client(
    kind: str = "product",
    *,
    policy: EgressPolicy | None = None,
    names: object = None,
    tls: ssl.SSLContext | None = None,
    limits: SenderLimits | None = None,
    proxy: Proxy | Callable[[], Proxy | None] | None = None,
) -> AsyncIterator[Client]:
    """A client of the kind ``product`` or ``reference``."""
    policy = policy or loopback_policy()
    lookup, tls = names or Names(), tls or build_tls_context()
    sender = (
        HttpSender(policy, lookup, tls, limits=limits, proxy=proxy if callable(proxy) else lambda: proxy)
        if kind == "product"
        else AiohttpSender(policy, lookup, tls)
    )
    async with sender:
        yield Client(sender, policy, kind == "product")
