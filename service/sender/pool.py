"""Idle connections, kept per (host, port, address, TLS) and bounded in number, idle time and age.

Belongs here: which connection carries the next request. Does not belong here: what happens on it (``connections``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from service.domain.outbound import Hop
from service.sender.connections import Connection

DISTRUST_SECONDS = 60.0
MAX_DISTRUSTED = 1000
PRUNE_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """Bounds on kept connections; times in seconds."""

    idle_per_hop: int = 256
    idle_total: int = 8192
    idle_seconds: float = 30.0
    age_seconds: float = 120.0


class Pool:
    """Keeps connections. The one used last is used first, so that a quiet receiver's surplus ones die of age.

    A receiver that sent bytes nobody asked for gets a fresh connection for each request for a minute: the next
    answer on the old one could not be told from them.
    """

    def __init__(self, limits: PoolLimits, clock: Callable[[], float]) -> None:
        self._limits = limits
        self._clock = clock
        self._idle: dict[Hop, list[Connection]] = {}
        self._open: set[Connection] = set()
        self._distrusted: dict[Hop, float] = {}
        self._now = clock()  # as of the last sweep: exact enough for ages, and cheaper than the clock
        self._next_prune = 0.0
        self.idle = 0

    @property
    def open(self) -> int:
        """Connections that exist, in use or idle."""
        return len(self._open)

    def adopt(self, connection: Connection) -> None:
        """Count a new connection in."""
        self._open.add(connection)

    def take(self, hops: Iterable[Hop]) -> Connection | None:
        """A usable idle connection to the first of these addresses that has one."""
        for hop in hops:
            kept = self._idle.get(hop)
            while kept:
                connection = kept.pop()
                self.idle -= 1
                if connection.usable and self._now - connection.made_at < self._limits.age_seconds:
                    return connection
                connection.close()
        return None

    def release(self, connection: Connection) -> None:
        """Keep a connection whose answer was read to its end, or close it when there are enough."""
        kept = self._idle.setdefault(connection.hop, [])
        full = len(kept) >= self._limits.idle_per_hop or self.idle >= self._limits.idle_total
        if full or (self._distrusted and connection.hop in self._distrusted):
            connection.close()
            return
        connection.idle_since = self._now
        kept.append(connection)
        self.idle += 1

    def forget(self, connection: Connection) -> None:
        """A connection is gone, whoever closed it."""
        self._open.discard(connection)
        kept = self._idle.get(connection.hop)
        if kept and connection in kept:
            kept.remove(connection)
            self.idle -= 1

    def distrust(self, connection: Connection) -> None:
        """Keep no connection to this receiver for a while."""
        if len(self._distrusted) < MAX_DISTRUSTED:
            self._distrusted[connection.hop] = self._clock() + DISTRUST_SECONDS

    def prune(self, now: float) -> None:
        """The sweep's housekeeping: once a second, close what has been idle too long or is too old, and trust again."""
        self._now = now
        if now < self._next_prune:
            return
        self._next_prune = now + PRUNE_SECONDS
        self._distrusted = {hop: until for hop, until in self._distrusted.items() if until > now}
        oldest, youngest = now - self._limits.idle_seconds, now - self._limits.age_seconds
        for hop, kept in list(self._idle.items()):
            for connection in [c for c in kept if c.idle_since <= oldest or c.made_at <= youngest]:
                kept.remove(connection)
                self.idle -= 1
                connection.close()
            if not kept:
                del self._idle[hop]

    def drop_idle(self) -> None:
        """Close every idle connection, to have their descriptors back."""
        kept, self._idle, self.idle = self._idle, {}, 0
        for connections in kept.values():
            for connection in connections:
                connection.close()

    def close(self) -> None:
        """Drop every connection, those in use too."""
        self.drop_idle()
        for connection in list(self._open):
            connection.abort()
