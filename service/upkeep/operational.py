"""Telling subscribers, and a Kafka topic, that webhooks were disabled and deliveries given up.

Belongs here: reading on from what was told, at least once per event. Two ways of telling keep their own place, so that
neither waits for the other. Does not belong here: what an event says (``domain.operational``).

The store reads on with an overlap, since a transaction may commit later than the instant it writes. A message that was
made before is not made again; what was sent is remembered here, so that only another leader sends some of it once more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

from service.domain.operational import OperationalEvent

AT_ONCE = 500

Send = Callable[[Sequence[OperationalEvent]], Awaitable[None]]


class News(Protocol):
    """What happened since it was last told, inside a transaction that remembers it as told."""

    events: Sequence[OperationalEvent]
    following: Any  # where to read on, None when this was all

    async def tell_subscribers(self) -> None:
        """Make a message of each event for the account webhooks that ask for its type."""


class NewsStore(Protocol):
    """Operational events. May raise StoreUnavailable."""

    def open_news(self, name: str, limit: int, after: Any) -> AbstractAsyncContextManager[News]:
        """Read on from where ``name`` stopped, or from ``after``; a clean exit moves its place."""


class OperationalNews:
    """One round: everything new is told to subscribers, or sent by ``send``."""

    def __init__(
        self,
        store: NewsStore,
        name: str,
        send: Send | None = None,
    ) -> None:
        self._store = store
        self._name = name
        self._send = send
        self._sent: set[str] = set()

    async def run_once(self) -> None:
        """Tell what is new."""
        seen: set[str] = set()
        following = await self._tell_some(None, seen)
        while following is not None:
            following = await self._tell_some(following, seen)
        self._sent &= seen

    async def _tell_some(self, after: Any, seen: set[str]) -> Any:
        async with self._store.open_news(self._name, AT_ONCE, after) as news:
            seen.update(event.message_id for event in news.events)
            if self._send is None:
                await news.tell_subscribers()
            else:
                await self._send_new(self._send, news.events)
            return news.following

    async def _send_new(self, send: Send, events: Sequence[OperationalEvent]) -> None:
        new = [event for event in events if event.message_id not in self._sent]
        if new:
            await send(new)
            self._sent.update(event.message_id for event in new)
