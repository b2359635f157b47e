"""Deliveries and attempts as the API lists them.

Belongs here: reading the queue and the history as one list, newest first, by index, with a bounded cost for any filter.
Does not belong here: changing deliveries (``redelivering``) and how they are shown (``service.api.views``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from service.store.batches import find_batch_keys
from service.store.codes import DoneState, Extra, LiveState, Scope
from service.store.database import Row, Session

SCAN = 10_000  # rows that one statement looks at
ROUNDS = 2  # statements for one page
# Ids grow with time, but a transaction may take a while between drawing one and its commit.
ID_SLACK = timedelta(minutes=10)
_ON_WIRE = 3  # no code of a row, but how the statements know it
_LIVE = {**{state.word: int(state) for state in LiveState}, "in_flight": _ON_WIRE}
_CODES = {**_LIVE, **{state.word: int(state) for state in DoneState}}


@dataclass(frozen=True, slots=True)
class SeenDelivery:
    """One delivery as it stands."""

    delivery_id: int
    webhook_key: int | None
    webhook_id: str
    message_id: str
    type: str
    scope: str
    batch_name: str | None
    batch_id: str | None
    job_id: str | None
    generation: int
    state: str
    reason: str | None
    attempts: int
    created_at: datetime
    due_at: datetime | None
    finished_at: datetime | None
    extra: str
    last_class: str | None
    last_error: str | None


@dataclass(frozen=True, slots=True)
class DeliveryFilter:
    """What a list is narrowed to; None is everything."""

    webhook_id: str | None = None
    batch: str | None = None
    job_id: str | None = None
    state: str | None = None
    type: str | None = None
    since: datetime | None = None
    until: datetime | None = None

    @property
    def narrows(self) -> bool:
        """Tell whether rows may be left out after the scan."""
        return (
            any((self.state, self.type, self.since, self.until))
            or sum(1 for one in (self.webhook_id, self.batch, self.job_id) if one) > 1
        )

    @property
    def live(self) -> bool | None:
        """Tell whether only the queue (True) or only history (False) can hold such rows."""
        return None if self.state is None else self.state in _LIVE

    @property
    def arguments(self) -> tuple[object, ...]:
        """What the statements take: state code, type, since, until, webhook id, batch name."""
        code = None if self.state is None else _CODES[self.state]
        return (code, self.type, self.since, self.until, self.webhook_id, self.batch)


@dataclass(frozen=True, slots=True)
class DeliveryList:
    """A page, which may be short when few rows match; ``next_before`` continues it, None ends it."""

    deliveries: list[SeenDelivery]
    next_before: int | None


def _state_word(row: Row) -> str:
    if row["finished_at"] is not None:
        return DoneState(row["state"]).word
    return "in_flight" if row["on_wire"] else LiveState(row["state"]).word


def read_delivery(row: Row) -> SeenDelivery:
    """Turn a row of ``list_deliveries.sql`` into a delivery."""
    return SeenDelivery(
        delivery_id=row["delivery_id"],
        webhook_key=row["webhook_key"],
        webhook_id=row["webhook_id"] or "",
        message_id=row["message_id"],
        type=row["type"],
        scope=Scope(row["scope"]).word,
        batch_name=row["batch_name"],
        batch_id=row["incarnation_id"],
        job_id=row["job_id"],
        generation=row["generation"],
        state=_state_word(row),
        reason=row["reason"],
        attempts=row["attempts"],
        created_at=row["created_at"],
        due_at=row["due_at"],
        finished_at=row["finished_at"],
        extra=Extra(row["extra"]).word,
        last_class=row["last_class"],
        last_error=row["last_error"],
    )


async def _choose_scan(session: Session, tenant_id: str, narrow: DeliveryFilter) -> tuple[str, Sequence[object]]:
    """Pick the statement whose index fits best, and the keys to look under."""
    if narrow.job_id is not None:
        rows = await session.fetch("list_messages_of_job", tenant_id, narrow.job_id)
        return "list_deliveries_of_messages", [row["message_id"] for row in rows]
    if narrow.batch is not None:
        return "list_deliveries_of_groups", await find_batch_keys(session, tenant_id, narrow.batch)
    if narrow.webhook_id is not None:
        rows = await session.fetch("list_webhook_keys", tenant_id, narrow.webhook_id)
        return "list_deliveries_of_webhooks", [row["webhook_key"] for row in rows]
    return "list_deliveries_of_tenants", [tenant_id]


async def list_deliveries(
    session: Session, tenant_id: str, narrow: DeliveryFilter, before: int, limit: int
) -> DeliveryList:
    """Return deliveries older than ``before``, newest first. At most twenty thousand rows are looked at."""
    statement, keys = await _choose_scan(session, tenant_id, narrow)
    size = max(SCAN, limit + 1) if narrow.narrows else limit + 1
    found: list[SeenDelivery] = []
    for _ in range(ROUNDS):
        rows = await session.fetch(
            statement, keys, before, size, narrow.live is not False, narrow.live is not True, tenant_id,
            *narrow.arguments, limit + 1,
        )  # fmt: skip
        found += _without_repeats(read_delivery(row) for row in rows if row["delivery_id"] is not None)
        if len(found) > limit:
            return DeliveryList(found[:limit], found[limit - 1].delivery_id)
        scan = rows[0]
        if scan["scanned"] < size or _is_past(scan, narrow):
            return DeliveryList(found, None)
        before = scan["last_id"]
    return DeliveryList(found, before)


def _without_repeats(scanned: Iterable[SeenDelivery]) -> list[SeenDelivery]:
    """Keep one of each id: a delivery that moves while we look may be in the queue and in history."""
    return list({seen.delivery_id: seen for seen in scanned}.values())


def _is_past(scan: Row, narrow: DeliveryFilter) -> bool:
    return narrow.since is not None and bool(scan["last_created_at"] < narrow.since - ID_SLACK)


async def find_delivery(session: Session, tenant_id: str, delivery_id: int) -> SeenDelivery | None:
    """Return one delivery of a tenant."""
    row = await session.find("list_delivery", delivery_id, tenant_id)
    return read_delivery(row) if row else None


async def list_attempts(session: Session, delivery_id: int) -> list[Row]:
    """Return the newest attempts of a delivery, at most two hundred, oldest first."""
    return (await session.fetch("list_attempts", delivery_id))[::-1]
