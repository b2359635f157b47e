"""Rate limits per caller, kept in this process.

Belongs here: token buckets and their bounds. Does not belong here: which call takes from which bucket (``dispatch``).
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass

from service.api.problems import Problem

MAX_BUCKETS = 20_000
MINUTE = 60.0
WRONG_KEYS = 60  # a minute from one address
WRONG_KEY_WAIT = 1.0  # seconds
MAX_WAITING = 100  # answers


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class RateLimiter:
    """Token buckets that hold one minute's worth and refill evenly. Bounded: full buckets are forgotten."""

    def __init__(self) -> None:
        self._buckets: dict[tuple[str, ...], _Bucket] = {}

    def take(self, name: tuple[str, ...], per_minute: int, now: float) -> float:
        """Take one token; return 0, or the seconds until there will be one."""
        bucket = self._buckets.get(name)
        if bucket is None:
            self._make_room(now)
            bucket = self._buckets[name] = _Bucket(float(per_minute), now)
        rate = per_minute / MINUTE
        bucket.tokens = min(float(per_minute), bucket.tokens + max(0.0, now - bucket.at) * rate)
        bucket.at = now
        if bucket.tokens < 1.0:
            return (1.0 - bucket.tokens) / rate
        bucket.tokens -= 1.0
        return 0.0

    def _make_room(self, now: float) -> None:
        if len(self._buckets) < MAX_BUCKETS:
            return
        self._buckets = {name: b for name, b in self._buckets.items() if now - b.at < MINUTE}
        while len(self._buckets) >= MAX_BUCKETS:
            self._buckets.pop(next(iter(self._buckets)))

    def check(self, name: tuple[str, ...], per_minute: int, now: float) -> None:
        """Take one token. Raises Problem (429) with ``Retry-After`` when there is none."""
        wait = self.take(name, per_minute, now)
        if wait > 0:
            seconds = max(1, math.ceil(wait))
            detail = f"At most {per_minute} such requests a minute; repeat in {seconds} s."
            raise Problem(429, "rate_limited", detail, headers={"Retry-After": str(seconds)})


class WrongKeys:
    """Slows down whoever tries keys: past a minute's ration of wrong ones from an address, each answer waits a second.

    A right key from the same address never waits, since a load balancer is one address to many callers.
    """

    def __init__(self, limiter: RateLimiter) -> None:
        self._limiter = limiter
        self._waiting = 0

    async def meet(self, address: str, now: float) -> None:
        """A wrong key came. Raises Problem (429) where too many answers wait already."""
        if not self._limiter.take(("wrong_key", address), WRONG_KEYS, now):
            return
        if self._waiting >= MAX_WAITING:
            raise Problem(429, "rate_limited", "Too many wrong keys.", headers={"Retry-After": "60"})
        self._waiting += 1
        try:
            await asyncio.sleep(WRONG_KEY_WAIT)
        finally:
            self._waiting -= 1
