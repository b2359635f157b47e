"""Operational events as the tables show them, and the messages made of them.

Implements ``upkeep.operational.NewsStore``. Events are read with some overlap, since a transaction may commit later than
the instant it writes; a message that was made before is not made again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

from service.domain.messages import Encoder
from service.domain.operational import (
    SOURCE,
    DeliveryExhausted,
    OperationalEvent,
    WebhookDisabled,
    as_tenants_see_it,
    build_operational_body,
)
from service.domain.routing import Subscriber
from service.domain.webhooks import matches
from service.ports import NewDelivery, NewMessage
from service.store import queueing
from service.store.codes import Scope
from service.store.database import Database, Session
from service.store.routing import RoutingCopy
from service.store.work import insert_messages

Place = tuple[datetime, int]  # of an exhausted delivery: when it ended, and its id
OVERLAP = timedelta(minutes=1)


@dataclass(slots=True)
class StoredNews:
    """Implements ``upkeep.operational.News``."""

    session: Session
    routing: RoutingCopy
    encode: Encoder
    now: datetime
    events: Sequence[OperationalEvent]
    following: Place | None
    made: int = 0

    async def tell_subscribers(self) -> None:
        """Make a message of each event for the account webhooks that ask for its type."""
        tenants = sorted({event.tenant_id for event in self.events})
        tenancies = await self.routing.list_tenancies(self.session, tenants)
        wanted = {
            event.message_id: (event, subscribers)
            for event in self.events
            if (subscribers := _subscribed(event, tenancies[event.tenant_id].subscribers.values()))
        }
        messages = [self._message(event) for event, _ in wanted.values()]
        new = await insert_messages(self.session, messages, self.now)
        self.made += len(new)
        deliveries = [
            self._delivery(event, subscriber)
            for message_id, (event, subscribers) in wanted.items()
            if message_id in new
            for subscriber in subscribers
        ]
        await queueing.enqueue(self.session, deliveries)

    def _message(self, event: OperationalEvent) -> NewMessage:
        body = build_operational_body(as_tenants_see_it(event), self.encode)
        return NewMessage(
            event.message_id, event.tenant_id, event.type, Scope.NONE.word, None, None, 0, SOURCE, event.at, body
        )

    def _delivery(self, event: OperationalEvent, subscriber: Subscriber) -> NewDelivery:
        return NewDelivery(
            tenant_id=event.tenant_id,
            webhook_key=subscriber.webhook_key,
            lane=subscriber.lane,
            message_id=event.message_id,
            body_at=self.now,
            type=event.type,
            scope=Scope.NONE.word,
            group_key=None,
            batch_key=None,
            job_id=None,
            generation=0,
            held=subscriber.held,
            extra="operational",
        )


class OperationalStore:
    """Reads on from where a way of telling stopped."""

    def __init__(self, database: Database, encode: Encoder, on_made: Callable[[int], object] = lambda _: None) -> None:
        """``on_made`` is told how many messages a committed transaction has made."""
        self._database = database
        self._on_made = on_made
        self._encode = encode
        self._routing = RoutingCopy()

    @asynccontextmanager
    async def open_news(self, name: str, limit: int, after: Place | None) -> AsyncIterator[StoredNews]:
        """Read on from where ``name`` stopped, or from ``after``; a clean exit moves its place."""
        async with self._database.transaction() as session:
            row = await session.find("operational_lock", name)
            assert row is not None
            since, known = after or (row["told_until"] - OVERLAP, 0)
            disabled = await session.fetch("operational_disabled", since) if after is None else []
            exhausted = await session.fetch("operational_exhausted", since, known, limit)
            last = exhausted[-1] if len(exhausted) == limit else None
            following = (last["finished_at"], last["delivery_id"]) if last else None
            events: list[OperationalEvent] = [*map(_disabled, disabled), *map(_exhausted, exhausted)]
            news = StoredNews(session, self._routing, self._encode, row["now"], events, following)
            yield news
            await session.execute("operational_told", name, last["finished_at"] if last else row["now"])
        if news.made:
            self._on_made(news.made)


def _subscribed(event: OperationalEvent, subscribers: Any) -> list[Subscriber]:
    """Account webhooks of the tenant that name the type, but for the one that it is about."""
    if isinstance(event, WebhookDisabled) and event.untold:
        return []
    return [s for s in subscribers if s.webhook_id != event.webhook_id and matches(s.filters, event.type, None, None)]


def _disabled(row: Any) -> WebhookDisabled:
    reason = row["state_reason"] or ""
    host = _host(row["origin"])
    return WebhookDisabled(row["tenant_id"], row["webhook_id"], host, reason, row["state_at"], row["untold"])


def _exhausted(row: Any) -> DeliveryExhausted:
    return DeliveryExhausted(
        tenant_id=row["tenant_id"],
        webhook_id=row["webhook_id"],
        url_host=_host(row["origin"]),
        reason=row["reason"],
        at=row["finished_at"],
        delivery_id=f"dlv_{row['delivery_id']}",
        about_message_id=row["message_id"],
        batch=row["batch"],
        job_id=row["job_id"],
        attempts=row["attempts"],
        last_error=row["last_error"],
    )


def _host(origin: str | None) -> str:
    return urlsplit(origin or "").hostname or ""
