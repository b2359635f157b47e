"""An attempt as the fields of its log line, from the same values that are recorded.

Belongs here: which fields a line about a delivery, an attempt and its decision has. Does not belong here: when a line
is written (``attempting``), what the body says that a message is about (``subjects``).
"""

from __future__ import annotations

from service.delivery.decisions import Undelivered
from service.delivery.entries import Entry
from service.delivery.ready import ReadyDelivery
from service.delivery.subjects import describe_subject
from service.domain.attempts import Outcome
from service.domain.traces import trace_id_of


def describe_delivery(row: ReadyDelivery, entry: Entry, trace: str | None = None) -> dict[str, object]:
    """Which delivery a log line is about; ``trace`` is the message's unless the attempt has a trace of its own."""
    fields: dict[str, object] = {
        "delivery_id": f"dlv_{row.delivery_id}",
        "message_id": row.message_id,
        "webhook_id": entry.webhook_id,
        "tenant_id": row.tenant_id,
        **describe_subject(row.body),
        "attempt": row.number,
    }
    trace = trace or row.trace
    return {**fields, "trace_id": trace_id_of(trace)} if trace else fields


def describe_attempt(row: ReadyDelivery, entry: Entry, outcome: Outcome, trace: str | None) -> dict[str, object]:
    """The fields that every log line about an attempt has."""
    return {
        **describe_delivery(row, entry, trace),
        "outcome": outcome.kind.value,
        "status": outcome.status,
        "detail": outcome.detail,
        "duration": round(outcome.duration, 3),
        "origin": entry.origin,
    }


def describe_decision(undelivered: Undelivered) -> dict[str, object]:
    """What a failed attempt led to."""
    decision = undelivered.decision
    return {
        "state": decision.state.value,
        "reason": None if decision.reason is None else decision.reason.value,
        "next_attempt_at": decision.next_attempt_at,
        "retry_after_clamped": decision.clamped,
    }
