"""The queue as the delivery engine sees it: claims, leases and outcomes, hundreds of rows a statement.

Belongs here: from the engine's values to columns and back. Does not belong here: putting deliveries in (``queueing``)
and any decision (``service.delivery``, ``service.domain``).
"""

from __future__ import annotations

from base64 import b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from service.delivery.claiming import Claimed, ClaimRequest, DueLanes
from service.delivery.decisions import Undelivered
from service.delivery.ready import ReadyDelivery, Special, Work
from service.delivery.recording import Accepted, Hold, Recorded, Refused, Release
from service.domain.deliveries import Reason, Recall
from service.domain.outcomes import Purpose
from service.ports import Freed
from service.store.codes import STATES, DoneState, Extra, WireFlag
from service.store.database import Database, Row, Session
from service.store.statements import columns

CODES: Final = {state: code for code, state in STATES.items()}
FLAGS: Final = {
    None: int(WireFlag.NONE),
    Recall.SUPERSEDED: int(WireFlag.SUPERSEDED),
    Recall.CANCELED: int(WireFlag.CANCELED),
    Recall.PAUSED: int(WireFlag.HELD),
    Recall.DISABLED: int(WireFlag.HELD),
    Recall.RESTART: int(WireFlag.RESTART),
}
_RECALLS: Final = {
    int(WireFlag.SUPERSEDED): Recall.SUPERSEDED,
    int(WireFlag.CANCELED): Recall.CANCELED,
    int(WireFlag.RESTART): Recall.RESTART,
}


class DeliveryStore:
    """The engine's ports on the queue: ``ClaimStore``, ``RecordStore`` and the rescue of leases."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # --- claiming -------------------------------------------------------------------------------------------------

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease due deliveries. One statement, which commits by itself."""
        async with self._database.session() as session:
            found = await session.fetch(
                "deliveries_claim",
                *columns(request.lanes.items(), 2),
                request.recent,
                request.since,
                _encode_rooms(request.rooms),
                request.default,
                request.limit,
                request.token,
                request.lease,
            )
        look = found[0]
        rows = [] if look["delivery_id"] is None else [_read_row(row, request) for row in found]
        return Claimed(rows, look["at"], look["found"], look["cut"])

    async def list_lanes(self, after: int, limit: int) -> DueLanes:
        """List those lanes that have something due, of the next ``limit`` lanes after ``after`` that have anything."""
        async with self._database.session() as session:
            row = await session.find("deliveries_lanes", after, limit)
        assert row is not None
        return DueLanes(row["lanes"], row["oldest"], row["at"], row["ends_at"])

    async def wake_extra(self, lanes: Collection[int], older: float, limit: int) -> None:
        """Make redeliveries and tests of these lanes due now that have been due for more than ``older`` seconds."""
        async with self._database.session() as session:
            await session.execute("deliveries_wake_extra", list(lanes), older, limit)

    async def set_aside(self, lane: int, since: float, webhook_keys: Collection[int], limit: int) -> None:
        """Move what is due of these webhooks into lanes of their own, from among the first ``limit`` due in ``lane``."""
        async with self._database.session() as session:
            await session.execute("deliveries_set_aside", lane, since, list(webhook_keys), limit)

    async def renew(self, rows: Collection[ReadyDelivery], lease: float) -> set[int]:
        """Renew leases; return the delivery ids of those that are still ours and unflagged."""
        leases = sorted((row.delivery_id, row.token) for row in rows)
        async with self._database.session() as session:
            kept = await session.fetch("deliveries_renew", *columns(leases, 2), lease)
        return {row["delivery_id"] for row in kept}

    async def find_wait(self) -> float | None:
        """Seconds until the next delivery becomes due, those that are due already left out; None: there is none."""
        async with self._database.session() as session:
            wait: float | None = await session.value("deliveries_next_due")
        return wait

    # --- recording ------------------------------------------------------------------------------------------------

    async def record_accepted(self, rows: Sequence[Accepted]) -> int:
        """Settle deliveries, whoever holds their lease; return how many became due that had waited for these."""
        async with self._database.session() as session:
            odd = await session.fetch("deliveries_delivered", _encode_accepted(rows))
            if not odd:
                return 0
            missing = {row["delivery_id"] for row in odd if row["missing"]}
            if missing:
                late = (_late_row(row) for row in rows if row[0] in missing)
                await session.fetch("deliveries_delivered_late", *columns(late, 8))
            return await _wake(session, [row["delivery_id"] for row in odd if not row["missing"]])

    async def record_undelivered(self, rows: Sequence[Undelivered]) -> Recorded:
        """Record decisions where lease and flag are as decided upon; return the others, as they stand now."""
        async with self._database.session() as session:
            recorded = await session.fetch("deliveries_decided", *columns((_decided_row(row) for row in rows), 19))
            done = {row["delivery_id"] for row in recorded}
            woken = await _wake(session, [row["delivery_id"] for row in recorded if row["ended"]])
            refused = [row.row for row in rows if row.row.delivery_id not in done]
            return Recorded(await _list_refused(session, refused), woken)

    async def record_lost(self, rows: Sequence[Undelivered]) -> None:
        """Log attempts whose lease was lost; their deliveries stay as they are."""
        async with self._database.session() as session:
            await session.execute("attempts_insert", *columns((_lost_row(row) for row in rows), 11))

    async def hold(self, rows: Sequence[Hold]) -> Freed:
        """Hold deliveries of stopped webhooks; return those that were handed back, since theirs is stopped no more."""
        async with self._database.transaction() as session:
            given = ((row.delivery_id, row.token, row.reason.value, row.webhook_key) for row in rows)
            ids, tokens, reasons, keys = columns(given, 4)
            held = await session.fetch("deliveries_hold", ids, tokens, reasons, keys)
            done = {row["delivery_id"] for row in held}
            rest = [Release(row.delivery_id, row.token) for row in rows if row.delivery_id not in done]
            return await _release(session, rest, expired_only=False)

    async def release(self, rows: Sequence[Release]) -> Freed:
        """Hand leases back; flagged deliveries become what their flag says."""
        async with self._database.session() as session:
            return await _release(session, rows, expired_only=False)

    async def wake_passed(self, works: Collection[Work]) -> int:
        """Make deliveries of these works due now that were due before, and that claims have passed by; return how many."""
        async with self._database.session() as session:
            return len(await session.fetch("deliveries_wake_passed", *columns(works, 2)))

    # --- rescuing -------------------------------------------------------------------------------------------------

    async def rescue(self, limit: int) -> Freed:
        """Take expired leases off, at most ``limit``."""
        async with self._database.session() as session:
            expired = await session.fetch("deliveries_expired", limit)
            leases = [Release(row["delivery_id"], row["lease_token"]) for row in expired]
            return await _release(session, leases, expired_only=True)

    async def wake_orphans(self, limit: int) -> int:
        """Make deliveries due that wait for another one that is not leased any more; return how many."""
        async with self._database.session() as session:
            return len(await session.fetch("deliveries_wake_orphans", limit))


def _encode_rooms(rooms: Mapping[int, int]) -> str:
    return orjson.dumps(rooms, option=orjson.OPT_NON_STR_KEYS).decode()


def _read_row(row: Iterable[Any], request: ClaimRequest) -> ReadyDelivery:
    *fields, special, _, _, _ = row
    ready = ReadyDelivery(request.token, request.expires, *fields)
    if special is not None:
        ready.special = _read_special(orjson.loads(special))
    return ready


def _read_special(special: Mapping[str, Any]) -> Special:
    """A test, a replay, a redelivery, one flagged before its lease was taken off, or one whose schedule started over."""
    recall, recall_reason = read_recall(special["flag"], special["flag_reason"])
    if special["state"] is None:
        purpose = Purpose.TEST if special["extra"] == Extra.TEST else Purpose.SCHEDULED
        return Special(purpose, recall, recall_reason, attempts_before=special["attempts_before"])
    before, reason = STATES[special["state"]], _reason(special["reason"])
    return Special(Purpose.REDELIVER, recall, recall_reason, before, reason, special["due"], special["attempts_before"])


def read_recall(flag: int, reason: str | None) -> tuple[Recall | None, Reason | None]:
    """A row's flag and its reason, as the state table knows them."""
    if flag == WireFlag.HELD:
        return (Recall.PAUSED if reason == Recall.PAUSED else Recall.DISABLED), None
    return _RECALLS.get(flag), _reason(reason)


def _reason(word: str | None) -> Reason | None:
    return None if word is None else Reason(word)


def _encode_accepted(rows: Sequence[Accepted]) -> str:
    return orjson.dumps(rows, default=_encode_bytes).decode()


def _encode_bytes(value: bytes) -> str:
    return b64encode(value).decode()


def _late_row(row: Accepted) -> tuple[object, ...]:
    delivery_id, _, *logged, _ = row
    return (delivery_id, *logged)


def _decided_row(each: Undelivered) -> tuple[object, ...]:
    row, decision = each.row, each.decision
    due = decision.next_attempt_at
    return (
        row.delivery_id,
        row.token,
        FLAGS[each.facts.recall],
        CODES[decision.state],
        None if decision.reason is None else decision.reason.value,
        decision.attempts,
        None if due is None else due.timestamp(),
        decision.restarted,
        each.error,
        row.number,
        *_log_fields(each),
        each.stale,
    )


def _log_fields(each: Undelivered) -> tuple[object, ...]:
    """started, duration, outcome, status, detail, flags, origin, excerpt: nothing but the first without an attempt."""
    outcome = each.outcome
    if outcome is None:
        return (each.started, 0, None, None, None, None, each.origin, None)
    return (
        each.started,
        int(outcome.duration * 1_000),
        outcome.kind.value,
        outcome.status,
        outcome.detail or None,
        ",".join(sorted(outcome.flags)) or None,
        each.origin,
        outcome.excerpt or None,
    )


def _lost_row(each: Undelivered) -> tuple[object, ...]:
    started, *rest = _log_fields(each)
    return (each.row.delivery_id, each.row.number, started, each.row.webhook_key, *rest)


async def _wake(session: Session, ended: Sequence[int]) -> int:
    """Make due what waited for these, which have left the queue; a statement of its own, to see what just committed."""
    return len(await session.fetch("deliveries_wake_waiting", ended)) if ended else 0


async def _list_refused(session: Session, rows: Iterable[ReadyDelivery]) -> list[Refused]:
    tokens = {row.delivery_id: row.token for row in rows}
    if not tokens:
        return []
    standing: dict[int, Any] = {
        row["delivery_id"]: row for row in await session.fetch("deliveries_refused", list(tokens))
    }
    return [_read_refused(delivery_id, token, standing.get(delivery_id)) for delivery_id, token in tokens.items()]


def _read_refused(delivery_id: int, token: int, row: Row | None) -> Refused:
    if row is None or row["lease_token"] != token:
        return Refused(delivery_id, ours=False)
    return Refused(delivery_id, True, *read_recall(row["flag"], row["flag_reason"]))


async def _release(session: Session, rows: Sequence[Release], *, expired_only: bool) -> Freed:
    if not rows:
        return Freed(0, {})
    released = await session.fetch("deliveries_release", *columns(rows, 4), expired_only)
    ended = [row for row in released if row["ended"] is not None]
    await _wake(session, [row["delivery_id"] for row in ended])
    return Freed(len(released), Counter(DoneState(row["ended"]).word for row in ended))
