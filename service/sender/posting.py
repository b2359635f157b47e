"""The seam: ``send(request, deadline) -> Outcome``, one HTTP attempt (chapters 3 and 5).

Belongs here: the steps of an attempt, in order. Does not belong here: any of the steps.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Self

from service.domain.attempts import Outcome, OutcomeClass, OwnFault
from service.domain.egress import EgressPolicy
from service.domain.outbound import Hop, OutboundRequest, Route
from service.domain.targets import Target
from service.sender.answers import AnswerReader
from service.sender.connections import Connection, Result
from service.sender.dialing import Dialer
from service.sender.failures import Failure
from service.sender.guard import Guard
from service.sender.pool import Pool, PoolLimits
from service.sender.proxy import Proxy
from service.sender.requests import render_request
from service.sender.resolver import Lookup, Resolver, ResolverLimits
from service.sender.sweep import Sweep
from service.sender.verdicts import answered, failed

_DEAD = {
    (OutcomeClass.RESET, "closed"),
    (OutcomeClass.RESET, "reset"),
    (OutcomeClass.PROTOCOL_ERROR, "not_http"),
}


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """Bounds of the sender.

    ``body_grace`` is how many seconds an answer may be held back when its body did not come with its head, so that
    the attempt log can show it; what is not there by then is flagged ``body_incomplete``.
    """

    pool: PoolLimits = field(default_factory=PoolLimits)
    resolver: ResolverLimits = field(default_factory=ResolverLimits)
    body_grace: float = 0.02


class HttpSender:
    """Sends. An asynchronous context manager: inside it, ``send`` may be called any number of times at once.

    The end of it closes every connection and the look-up.
    """

    def __init__(
        self,
        policy: EgressPolicy,
        lookup: Lookup,
        tls: ssl.SSLContext,
        *,
        proxy: Callable[[], Proxy | None] = lambda: None,
        limits: SenderLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limits = limits or SenderLimits()
        self._clock = clock
        self._lookup = lookup
        self._resolver = Resolver(lookup, self._limits.resolver, clock)
        self._guard = Guard(policy, self._resolver, clock)
        self._pool = Pool(self._limits.pool, clock)
        self._sweep = Sweep(clock, self._pool.prune)
        self._dialer = Dialer(tls, proxy, self._build_connection, clock)

    async def __aenter__(self) -> Self:
        self._sweep.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._sweep.stop()
        self._pool.close()
        await self._lookup.close()

    @property
    def connections(self) -> tuple[int, int]:
        """How many connections there are, and how many of them are idle."""
        return self._pool.open, self._pool.idle

    def find_route(self, target: Target, tenant_id: str) -> Route | None:
        """The checked addresses of a target when they are known, without waiting."""
        return self._guard.find_route(target, tenant_id)

    async def locate(self, target: Target, tenant_id: str, deadline: float) -> Route | Outcome:
        """The checked addresses of a target, to be asked for before a slot is taken; no packet goes to them.

        An ``Outcome`` says why there are none (``dns_error``, ``blocked_address``). Raises ``OwnFault``.
        """
        route = await self._guard.locate(target, tenant_id, deadline)
        return failed(route) if isinstance(route, Failure) else route

    async def send(self, request: OutboundRequest, deadline: float) -> Outcome:
        """Make one attempt. ``deadline`` is the end of it all, in seconds of the clock (``time.monotonic``).

        Raises ``OwnFault`` when the attempt could not be made for a reason of our own; everything else that can go
        wrong is an outcome. A timeout is noticed within a tenth of a second after the deadline, or within two thirds
        when hundreds of attempts time out at once.
        """
        started = self._clock()
        route = request.route
        if route is None or route.fresh_until <= started:
            located = await self._guard.locate(request.target, request.tenant_id, deadline)
            if isinstance(located, Failure):
                return failed(located)
            route, started = located, self._clock()
        payload = render_request(request)
        if started >= deadline:
            return failed(Failure(OutcomeClass.TIMEOUT, "before_connect"))
        kept = self._pool.take(route.hops)
        if kept is not None:
            result = await self._exchange(kept, payload, deadline)
            if not _died_unanswered(result):
                return self._conclude(result, kept.hop, started)
        return await self._send_fresh(route, payload, request, deadline, started, redialed=kept is not None)

    async def _send_fresh(
        self, route: Route, payload: bytes, request: OutboundRequest, deadline: float, started: float, *, redialed: bool
    ) -> Outcome:
        until = min(deadline, self._clock() + request.connect_timeout)
        try:
            connection = await self._dialer.dial(route, until)
        except OwnFault:
            self._pool.drop_idle()  # they may hold what is missing
            raise
        if isinstance(connection, Failure):
            return failed(connection, route.address, self._clock() - started, redialed=redialed)
        result = await self._exchange(connection, payload, deadline)
        return self._conclude(result, connection.hop, started, redialed=redialed)

    async def _exchange(self, connection: Connection, payload: bytes, deadline: float) -> Result:
        try:
            return await connection.post(payload, deadline)
        except BaseException:  # cancelled: what the receiver answers now belongs to nobody
            connection.abort()
            raise

    def _conclude(self, result: Result, hop: Hop, started: float, *, redialed: bool = False) -> Outcome:
        duration = self._clock() - started
        if isinstance(result, AnswerReader):
            return answered(result, hop.address, duration, redialed=redialed)
        return failed(result, hop.address, duration, redialed=redialed)

    def _build_connection(self, hop: Hop) -> Connection:
        return Connection(hop, self._pool, self._sweep.watched, self._clock, self._limits.body_grace)


def _died_unanswered(result: Result) -> bool:
    """True when a kept connection turned out dead before any byte, or still carried some of the answer before."""
    return isinstance(result, Failure) and (
        result.kind is OutcomeClass.TLS_ERROR or (result.kind, result.detail) in _DEAD
    )
