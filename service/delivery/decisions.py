"""Decisions about deliveries that were not accepted, kept with their facts: a flag set meanwhile has them decided again.

Belongs here: from a leased delivery and its webhook to the facts of the state table. Does not belong here: the table
(``domain.outcomes``) and writing the decision down (``recording``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from service.delivery.entries import Entry
from service.delivery.instants import instant
from service.delivery.ready import ReadyDelivery
from service.domain.attempts import Outcome
from service.domain.deliveries import Reason, Recall, State
from service.domain.outcomes import Decision, DeliveryFacts, Verdict, decide, withhold


@dataclass(frozen=True, slots=True)
class Undelivered:
    """A decision to be recorded. ``outcome`` is None when no attempt was made, and ``verdict`` then says why.

    ``started`` is in seconds since 1970; ``stale``: the webhook's revision changed while the attempt ran.
    """

    row: ReadyDelivery
    facts: DeliveryFacts
    decision: Decision
    origin: str
    outcome: Outcome | None = None
    verdict: Verdict | None = None
    jitter: float = 0.0
    started: float = 0.0
    stale: bool = False

    @property
    def error(self) -> str | None:
        """One line for people: the outcome's class with its status or detail."""
        if self.outcome is None:
            return None
        return describe_outcome(self.outcome)


def decide_attempt(
    row: ReadyDelivery, entry: Entry, outcome: Outcome, now: datetime, jitter: float, started: float, *, stale: bool
) -> Undelivered:
    """Decide after an attempt that was not accepted."""
    facts = build_facts(row, entry, stale=stale)
    decision = decide(facts, outcome, now, jitter)
    return Undelivered(row, facts, decision, entry.origin, outcome, None, jitter, started, stale)


def decide_without_attempt(row: ReadyDelivery, entry: Entry, verdict: Verdict, now: datetime) -> Undelivered:
    """Decide about a delivery that cannot be sent; no retry is spent."""
    facts = build_facts(row, entry, stale=False)
    return Undelivered(row, facts, withhold(facts, verdict, now), entry.origin, verdict=verdict)


def end_without_attempt(row: ReadyDelivery, entry: Entry, state: State, reason: Reason) -> Undelivered:
    """End a delivery whose body or webhook is gone."""
    decision = Decision(state, reason, attempts=row.spent)
    return Undelivered(row, build_facts(row, entry, stale=False), decision, entry.origin)


def decide_again(first: Undelivered, recall: Recall | None, reason: Reason | None, now: datetime) -> Undelivered:
    """The same attempt, decided with the flag that its delivery has now."""
    facts = first.facts._replace(recall=recall, recall_reason=reason)
    decision = first.decision
    if first.outcome is not None:
        decision = decide(facts, first.outcome, now, first.jitter)
    elif first.verdict is not None:
        decision = withhold(facts, first.verdict, now)
    return replace(first, facts=facts, decision=decision)


def build_facts(row: ReadyDelivery, entry: Entry, *, stale: bool) -> DeliveryFacts:
    """The facts that the state table decides by."""
    special = row.special
    return DeliveryFacts(
        schedule=entry.schedule,
        attempts=row.spent,
        purpose=special.purpose,
        before=special.before,
        before_reason=special.before_reason,
        next_attempt_at=None if special.before_due is None else instant(special.before_due),
        recall=special.recall,
        recall_reason=special.recall_reason,
        one_shot=entry.one_shot,
        stale=stale,
    )


def describe_outcome(outcome: Outcome) -> str:
    """``http_error 503``, ``tls_error expired``, ``timeout``: never a URL, never anything that the receiver sent."""
    extra = outcome.detail if outcome.status is None else str(outcome.status)
    return f"{outcome.kind.value} {extra}".rstrip()
