"""Names to addresses, with bounds on everything: time, memory, flights per name and look-ups per tenant.

Belongs here: the cache and who waits for whom. Does not belong here: the DNS protocol (``dns``) and whether an address
may be dialled (``guard``).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import NamedTuple, Protocol

from service.domain.addresses import Address
from service.domain.attempts import TenantBusy


class Found(NamedTuple):
    """What a look-up gave: addresses as text with their time to live in seconds, or a word for the problem."""

    addresses: tuple[str, ...] = ()
    ttl: float = 0.0
    problem: str = ""


class Lookup(Protocol):
    """Asks the DNS for the addresses of an absolute name; may raise ``OwnFault``, bounds nothing itself."""

    async def __call__(self, name: str) -> Found: ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class ResolverLimits:
    """Bounds of the resolver; times in seconds. Positive answers stay for their own time to live within the bounds."""

    lookup_seconds: float = 2.0
    shortest_ttl: float = 2.0
    longest_ttl: float = 9.0
    negative_ttl: float = 3.0
    cached_names: int = 20_000
    lookups_per_tenant: int = 32


@dataclass(frozen=True, slots=True)
class Resolved:
    """A look-up's result as it is cached: ``problem`` is empty when there are addresses."""

    addresses: tuple[Address, ...]
    problem: str
    fresh_until: float


class Resolver:
    """A bounded cache over a ``Lookup``: one flight per name, a cap of flights per tenant."""

    def __init__(self, lookup: Lookup, limits: ResolverLimits, clock: Callable[[], float]) -> None:
        self._lookup = lookup
        self._limits = limits
        self._clock = clock
        self._cache: OrderedDict[str, Resolved] = OrderedDict()
        self._flights: dict[str, asyncio.Future[None]] = {}
        self._tenants: dict[str, _TenantSlots] = {}

    def __len__(self) -> int:
        """Names in the cache."""
        return len(self._cache)

    async def resolve(self, name: str, tenant_id: str, deadline: float) -> Resolved:
        """The addresses of an absolute name (given without its last dot).

        ``deadline`` (seconds of the clock) bounds the wait for the tenant's other look-ups; past it, and when the
        machine has no descriptors left, raises ``OwnFault``.
        """
        while True:
            known = self._cache.get(name)
            if known is not None and known.fresh_until > self._clock():
                return known
            flight = self._flights.get(name)
            if flight is None:
                return await self._lead(name, tenant_id, deadline)
            await asyncio.shield(flight)

    async def _lead(self, name: str, tenant_id: str, deadline: float) -> Resolved:
        """Fly; whoever asks for the name meanwhile waits for the end, and flies again if this one was cancelled."""
        self._flights[name] = flight = asyncio.get_running_loop().create_future()
        try:
            async with self._tenant_slot(tenant_id, deadline):
                found = await self._look_up(name)
            return self._remember(name, found)
        finally:
            del self._flights[name]
            flight.set_result(None)

    async def _look_up(self, name: str) -> Found:
        try:
            async with asyncio.timeout(self._limits.lookup_seconds):
                return await self._lookup(name)
        except TimeoutError:
            return Found(problem="timeout")

    def _remember(self, name: str, found: Found) -> Resolved:
        limits = self._limits
        ttl = min(max(found.ttl, limits.shortest_ttl), limits.longest_ttl) if found.addresses else limits.negative_ttl
        resolved = Resolved(
            addresses=tuple(ip_address(text.partition("%")[0]) for text in found.addresses),
            problem="" if found.addresses else found.problem or "no_address",
            fresh_until=self._clock() + ttl,
        )
        self._cache.pop(name, None)
        self._cache[name] = resolved
        while len(self._cache) > limits.cached_names:
            self._cache.popitem(last=False)
        return resolved

    @asynccontextmanager
    async def _tenant_slot(self, tenant_id: str, deadline: float) -> AsyncIterator[None]:
        slots = self._tenants.setdefault(tenant_id, _TenantSlots(self._limits.lookups_per_tenant))
        slots.users += 1
        try:
            await self._acquire(slots, deadline)
            try:
                yield
            finally:
                slots.free.release()
        finally:
            slots.users -= 1
            if not slots.users:
                del self._tenants[tenant_id]

    async def _acquire(self, slots: _TenantSlots, deadline: float) -> None:
        try:
            async with asyncio.timeout(deadline - self._clock()):
                await slots.free.acquire()
        except TimeoutError:
            raise TenantBusy("dns_busy", "too many look-ups of one tenant") from None


class _TenantSlots:
    """The look-ups that one tenant may have in flight; dropped when nobody uses it."""

    def __init__(self, count: int) -> None:
        self.free = asyncio.Semaphore(count)
        self.users = 0
