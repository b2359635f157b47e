"""The guard before every dial: from a target to checked addresses, or to the reason why not (chapter 3, URL policy).

Belongs here: resolving and judging together. Does not belong here: the rules (``service.domain.targets``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from service.domain.addresses import Address
from service.domain.attempts import OutcomeClass
from service.domain.egress import EgressPolicy
from service.domain.outbound import Hop, Route
from service.domain.targets import Refusal, Target, judge_address
from service.sender.failures import Failure
from service.sender.resolver import Resolver

MAX_ROUTES = 20_000
MAX_ADDRESSES = 16
_LITERAL_SECONDS = 10.0


class Guard:
    """Gives routes. Those given lately are kept until the name must be resolved again, at most 10 s."""

    def __init__(self, policy: EgressPolicy, resolver: Resolver, clock: Callable[[], float]) -> None:
        self._policy = policy
        self._resolver = resolver
        self._clock = clock
        self._routes: dict[tuple[str, int, bool, str], Route] = {}
        # Tenants share a verdict unless an entry of the policy names one.
        self._by_tenant = any(entry.tenant for entry in (*policy.allow, *policy.deny))

    def find_route(self, target: Target, tenant_id: str) -> Route | None:
        """A route that is still fresh, without waiting."""
        route = self._routes.get(self._key(target, tenant_id))
        return route if route is not None and route.fresh_until > self._clock() else None

    async def locate(self, target: Target, tenant_id: str, deadline: float) -> Route | Failure:
        """The checked addresses of a target, resolved if need be.

        Every address is judged and one that is refused refuses all. ``Failure`` is ``dns_error`` or
        ``blocked_address`` with the reason word; raises ``OwnFault``. ``deadline`` bounds the wait for other look-ups
        of the tenant.
        """
        known = self.find_route(target, tenant_id)
        if known is not None:
            return known
        if target.literal is not None:
            return self._judge(target, tenant_id, (target.literal,), self._clock() + _LITERAL_SECONDS)
        resolved = await self._resolver.resolve(target.host, tenant_id, deadline)
        if resolved.problem:
            return Failure(OutcomeClass.DNS_ERROR, resolved.problem)
        return self._judge(target, tenant_id, resolved.addresses, resolved.fresh_until)

    def _judge(
        self, target: Target, tenant_id: str, addresses: tuple[Address, ...], fresh_until: float
    ) -> Route | Failure:
        refusal = self._find_refusal(target, tenant_id, addresses)
        if refusal is not None:
            return Failure(OutcomeClass.BLOCKED_ADDRESS, refusal.reason)
        hops = tuple(Hop(target.host, target.port, str(each), target.tls) for each in addresses[:MAX_ADDRESSES])
        route = Route(hops, fresh_until)
        self._remember(self._key(target, tenant_id), route)
        return route

    def _find_refusal(self, target: Target, tenant_id: str, addresses: Iterable[Address]) -> Refusal | None:
        verdicts = (judge_address(each, self._policy, target.host, target.port, tenant_id) for each in addresses)
        return next((verdict for verdict in verdicts if verdict is not None), None)

    def _remember(self, key: tuple[str, int, bool, str], route: Route) -> None:
        self._routes.pop(key, None)
        self._routes[key] = route
        if len(self._routes) > MAX_ROUTES:
            del self._routes[next(iter(self._routes))]

    def _key(self, target: Target, tenant_id: str) -> tuple[str, int, bool, str]:
        return target.host, target.port, target.tls, tenant_id if self._by_tenant else ""
