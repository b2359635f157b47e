"""Redelivering and canceling one delivery.

Belongs here: the transaction scripts of ``/redeliver`` and ``/cancel``. Which states allow them is
``domain.deliveries``; what the extra attempt's outcome leads to is ``domain.outcomes``.

A redelivery is the delivery's own row, due now, with ``resume_state`` set to what it goes back to if the attempt fails:
a live state with its reason and due time, or a done one, for which the row has moved from history into the queue.
"""

from __future__ import annotations

from dataclasses import dataclass

from service.domain.deliveries import CallRefused, Reason, State, find_cancel_refusal, find_redeliver_refusal
from service.store.codes import STATES, WEBHOOK_STATES, DoneState, Extra
from service.store.database import Row, Session
from service.store.registry import Refused, Registry

_SENTENCES = {
    CallRefused.IN_FLIGHT: "The delivery is being attempted at this moment, or an extra attempt is queued already.",
    CallRefused.CANCELED: "The delivery was canceled.",
    CallRefused.WEBHOOK_PAUSED: "The webhook is paused; enable it first.",
    CallRefused.WEBHOOK_DISABLED: "The webhook is disabled; enable it first.",
    CallRefused.WEBHOOK_MISSING: "There is no webhook with this id.",
    CallRefused.DELIVERED: "The delivery was accepted already; repeat with force to send it again.",
    CallRefused.SUPERSEDED: "A newer delivery took this one's place; repeat with force to send it all the same.",
    CallRefused.FINISHED: "The delivery has ended already.",
}
_FIRST_DONE = int(DoneState.DELIVERED)


@dataclass(frozen=True, slots=True)
class _Found:
    """A locked delivery: its row, its state, and whether it is in history."""

    row: Row
    state: State
    done: bool


async def _lock(session: Session, tenant_id: str, delivery_id: int) -> _Found | None:
    row = await session.find("delivery_lock", delivery_id, tenant_id)
    if row is not None:
        return _Found(row, _live_state(row), done=False)
    row = await session.find("delivery_lock_done", delivery_id, tenant_id)
    return _Found(row, STATES[row["state"]], done=True) if row else None


def _live_state(row: Row) -> State:
    """One that is due for an extra attempt, or waits for another of its work, counts as in flight."""
    if row["on_wire"] or row["resume_state"] is not None or row["waits_for"] is not None:
        return State.IN_FLIGHT
    return STATES[row["state"]]


def _refuse(refusal: CallRefused) -> Refused:
    return Refused(409, refusal.value, _SENTENCES[refusal])


async def _lock_destination(session: Session, tenant_id: str, delivery_id: int) -> Row | None:
    """Lock the webhook before the delivery: the one it was made for, or what has its id now."""
    return await session.find("delivery_lock_webhook", delivery_id, tenant_id)


async def redeliver(session: Session, tenant_id: str, delivery_id: int, *, force: bool) -> None:
    """Ask for one extra attempt now. Raises Refused: 404 or 409."""
    webhook = await _lock_destination(session, tenant_id, delivery_id)
    found = await _lock(session, tenant_id, delivery_id)
    if found is None:
        raise Refused(404, "not_found", "There is no such delivery.")
    state = WEBHOOK_STATES[webhook["state"]] if webhook else None
    refusal = find_redeliver_refusal(found.state, state, force=force)
    if refusal is not None:
        raise _refuse(refusal)
    if found.row["extra"] == Extra.TEST:
        raise Refused(409, "test_delivery", "A test is not redelivered; send another one.")
    assert webhook is not None
    await _queue_extra(session, found, webhook)
    await session.execute("deliveries_wake")


async def _queue_extra(session: Session, found: _Found, webhook: Row) -> None:
    delivery_id = found.row["delivery_id"]
    if not found.done:
        fault = found.row["reason"] == Reason.INTERNAL_ERROR
        await session.execute("delivery_release" if fault else "delivery_extra", delivery_id)
        return
    queued = await session.value(
        "delivery_extra_done", delivery_id, found.row["finished_at"], webhook["webhook_key"], webhook["lane"]
    )
    if queued is None:
        raise Refused(
            409, "body_gone", "The message's body is gone, or a delivery of it to this webhook waits already."
        )


async def cancel(session: Session, registry: Registry, tenant_id: str, delivery_id: int) -> None:
    """End a waiting delivery as canceled. Raises Refused: 404 or 409."""
    found = await _lock(session, tenant_id, delivery_id)
    if found is None:
        raise Refused(404, "not_found", "There is no such delivery.")
    row = found.row
    waits = not found.done and not row["on_wire"] and (row["resume_state"] is None or row["resume_state"] < _FIRST_DONE)
    state = STATES[row["state"]] if waits else found.state
    refusal = find_cancel_refusal(state)
    if refusal is not None:
        raise _refuse(refusal)
    registry.finished("canceled", await session.write("deliveries_cancel", [delivery_id], Reason.BY_REQUEST.value))
