"""The state table: what the end of an attempt makes of its delivery and its webhook.

Belongs here: (delivery, outcome, now, jitter) -> what happens next, as a table that drives the code, the exhaustive
test and the diagram. Does not belong here: what happens between attempts (``deliveries``), how healthy a webhook is
(``health``), writing anything down.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

from service.domain.attempts import Outcome, OutcomeClass
from service.domain.deliveries import FINISHED, LIFECYCLE, Reason, Recall, State
from service.domain.schedule import RetryAfter, Schedule, find_hold_until, parse_retry_after
from service.domain.webhooks import DisableReason

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime


class Purpose(StrEnum):
    """Why the attempt was made."""

    SCHEDULED = "scheduled"
    REDELIVER = "redeliver"
    TEST = "test"


class AttemptKind(StrEnum):
    """The table's first column: the purpose, with a redeliver split by whether the delivery was finished before it."""

    SCHEDULED = "scheduled"
    EXTRA = "extra"  # a redeliver of one that still waits
    RESEND = "resend"  # a redeliver of a finished one
    TEST = "test"


class Verdict(StrEnum):
    """The table's third column: an outcome, judged with what is known of the delivery."""

    ACCEPTED = "accepted"
    RETRYABLE = "retryable"
    EXHAUSTED = "exhausted"  # a failure after which the schedule has no step
    UNSENDABLE = "unsendable"  # the URL is refused for its form
    GONE = "gone"
    GONE_ALONE = "gone_alone"  # 410 to a one-shot
    LOST = "lost"  # no outcome was recorded: lease expired, handed back, or our own fault
    BROKEN = "broken"  # an unexpected exception of ours
    UNDECRYPTABLE = "undecryptable"
    UNSIGNABLE = "unsignable"  # no default secret yet


class Next(StrEnum):
    """When the delivery is due again."""

    NEVER = "never"
    SCHEDULE = "schedule"
    NOW = "now"  # no retry is spent
    FRESH = "fresh"  # now, and the schedule starts over
    AS_BEFORE = "as_before"


class Ending(NamedTuple):
    """What a row of the table leads to. ``state`` None: the state and reason before the claim."""

    state: State | None
    reason: Reason | None = None
    next: Next = Next.NEVER
    again: bool = False  # the extra attempt itself is still owed


class Rule(NamedTuple):
    """One line of the table; an empty tuple stands for every value (of recall: with and without a flag)."""

    kinds: tuple[AttemptKind, ...]
    recalls: tuple[Recall | None, ...]
    verdicts: tuple[Verdict, ...]
    ending: Ending


Key = tuple[AttemptKind, Recall | None, Verdict]

_AS_BEFORE: Final = Ending(None, next=Next.AS_BEFORE)
_OWED: Final = Ending(None, next=Next.AS_BEFORE, again=True)
_BACK: Final = Ending(None, next=Next.NOW)
_LIVE: Final = (AttemptKind.SCHEDULED, AttemptKind.EXTRA)

# The first line that fits decides.
RULES: Final = (
    Rule((), (), (Verdict.ACCEPTED,), Ending(State.DELIVERED)),
    Rule((AttemptKind.RESEND,), (), (Verdict.LOST,), _OWED),
    Rule((AttemptKind.RESEND,), (), (), _AS_BEFORE),
    Rule((), (Recall.CANCELED,), (), Ending(State.CANCELED)),
    Rule((AttemptKind.TEST,), (), (Verdict.LOST,), _BACK),
    Rule((AttemptKind.TEST,), (), (), Ending(State.FAILED, Reason.TEST_FAILED)),
    Rule(_LIVE, (Recall.SUPERSEDED,), (), Ending(State.SUPERSEDED)),
    Rule(_LIVE, (Recall.PAUSED,), (), Ending(State.HELD, Reason.PAUSED)),
    Rule(_LIVE, (Recall.DISABLED,), (), Ending(State.HELD, Reason.DISABLED)),
    Rule(_LIVE, (Recall.RESTART,), (), Ending(State.PENDING, next=Next.FRESH)),
    Rule(_LIVE, (None,), (Verdict.GONE,), Ending(State.HELD, Reason.DISABLED)),
    Rule((AttemptKind.EXTRA,), (None,), (Verdict.LOST,), _OWED),
    Rule((AttemptKind.EXTRA,), (None,), (), _AS_BEFORE),
    Rule((), (None,), (Verdict.RETRYABLE,), Ending(State.RETRYING, next=Next.SCHEDULE)),
    Rule((), (None,), (Verdict.EXHAUSTED,), Ending(State.FAILED, Reason.EXHAUSTED)),
    Rule((), (None,), (Verdict.UNSENDABLE,), Ending(State.FAILED, Reason.URL_REFUSED)),
    Rule((), (None,), (Verdict.GONE_ALONE,), Ending(State.FAILED, Reason.GONE)),
    Rule((), (None,), (Verdict.LOST,), _BACK),
    Rule((), (None,), (Verdict.BROKEN,), Ending(State.HELD, Reason.INTERNAL_ERROR)),
    Rule((), (None,), (Verdict.UNDECRYPTABLE,), Ending(State.HELD, Reason.UNDECRYPTABLE)),
    Rule((), (None,), (Verdict.UNSIGNABLE,), Ending(State.HELD, Reason.NO_SIGNING_KEY)),
)


def _expand() -> Iterator[tuple[Key, Ending]]:
    """Every combination with the first line that fits it: later pairs of a dict win, so the lines go in backwards."""
    for rule in reversed(RULES):
        for kind in rule.kinds or tuple(AttemptKind):
            for recall in rule.recalls or (None, *Recall):
                for verdict in rule.verdicts or tuple(Verdict):
                    yield (kind, recall, verdict), rule.ending


TABLE: Final[dict[Key, Ending]] = dict(_expand())


class DeliveryFacts(NamedTuple):
    """What is known of a delivery when its attempt has ended (a tuple: one is made per attempt, and it is cheapest).

    ``attempts``: scheduled attempts recorded before this one, of the present schedule. ``before``, ``before_reason``,
    ``next_attempt_at``: as they were when it was claimed. ``recall``: the flag set meanwhile, with ``recall_reason`` for
    a cancel. ``stale``: the webhook's revision has changed since the attempt was signed, so its state is out of reach.
    """

    schedule: Schedule
    attempts: int = 0
    purpose: Purpose = Purpose.SCHEDULED
    before: State = State.PENDING
    before_reason: Reason | None = None
    next_attempt_at: datetime | None = None
    recall: Recall | None = None
    recall_reason: Reason | None = None
    one_shot: bool = False
    stale: bool = False

    @property
    def kind(self) -> AttemptKind:
        """Which rows of the table apply."""
        if self.purpose is Purpose.REDELIVER:
            return AttemptKind.RESEND if self.before in FINISHED else AttemptKind.EXTRA
        return AttemptKind(self.purpose.value)


@dataclass(frozen=True, slots=True)
class Decision:
    """What to write.

    ``attempts`` is the delivery's new count and ``restarted`` means that its schedule began at ``next_attempt_at``.
    ``again``: the extra attempt is still owed. ``disable``: the webhook goes to ``disabled`` with this reason, and its
    other deliveries are held. ``hold_until``: the whole webhook waits (keep the later of this and the stored one).
    ``observed``: the outcome counts for the webhook's health. ``clamped``: the receiver's ``Retry-After`` was above 24 h
    (log it).
    """

    state: State
    reason: Reason | None = None
    next_attempt_at: datetime | None = None
    attempts: int = 0
    restarted: bool = False
    again: bool = False
    disable: DisableReason | None = None
    hold_until: datetime | None = None
    observed: bool = False
    clamped: bool = False

    @property
    def finished(self) -> bool:
        """True when the delivery leaves the queue."""
        return self.state in FINISHED and not self.again


def decide(facts: DeliveryFacts, outcome: Outcome, now: datetime, jitter: float) -> Decision:
    """What the outcome of an attempt leads to; ``jitter`` is a random number in [0, 1).

    An accepted attempt needs no decision, since its delivery is ``delivered`` whatever else is so (the table's first
    line): workers record it without asking.
    """
    touches = not facts.stale and facts.purpose is not Purpose.TEST
    verdict = judge(facts, outcome)
    asked = parse_retry_after(outcome.retry_after, now) if outcome.retry_after else None
    return _apply(
        facts,
        TABLE[facts.kind, facts.recall, verdict],
        _Extras(
            now=now,
            jitter=jitter,
            asked=asked,
            spent=facts.purpose is not Purpose.REDELIVER,
            disable=DisableReason.GONE if verdict is Verdict.GONE and touches else None,
            hold_until=find_hold_until(outcome.status, asked, now) if touches else None,
            observed=touches,
        ),
    )


def withhold(facts: DeliveryFacts, verdict: Verdict, now: datetime) -> Decision:
    """What a delivery becomes without an outcome: ``BROKEN``, ``UNDECRYPTABLE``, ``UNSIGNABLE``. Spends no retry.

    ``LOST`` is written by SQL, for many leases at a time (``store/sql/deliveries_release.sql``).
    """
    return _apply(facts, TABLE[facts.kind, facts.recall, verdict], _Extras(now))


def judge(facts: DeliveryFacts, outcome: Outcome) -> Verdict:
    """The verdict on an outcome, by which the table is read."""
    match outcome.kind:
        case OutcomeClass.DELIVERED:
            return Verdict.ACCEPTED
        case OutcomeClass.URL_REFUSED:
            return Verdict.UNSENDABLE
        case OutcomeClass.GONE if facts.one_shot:
            return Verdict.GONE_ALONE
        case OutcomeClass.GONE if not facts.stale:
            return Verdict.GONE
    return Verdict.RETRYABLE if facts.attempts < len(facts.schedule.steps) else Verdict.EXHAUSTED


class _Extras(NamedTuple):
    """What an ending needs beside the facts."""

    now: datetime
    jitter: float = 0.0
    asked: RetryAfter | None = None
    spent: bool = False
    disable: DisableReason | None = None
    hold_until: datetime | None = None
    observed: bool = False


def _apply(facts: DeliveryFacts, ending: Ending, extras: _Extras) -> Decision:
    fresh = ending.next is Next.FRESH
    state, reason = (facts.before, facts.before_reason) if ending.state is None else (ending.state, ending.reason)
    return Decision(
        state=state,
        reason=facts.recall_reason if ending.state is State.CANCELED else reason,
        next_attempt_at=_find_next(facts, ending.next, extras),
        attempts=0 if fresh else facts.attempts + extras.spent,
        restarted=fresh,
        again=ending.again,
        disable=extras.disable,
        hold_until=extras.hold_until,
        observed=extras.observed,
        clamped=extras.asked is not None and extras.asked.clamped,
    )


def _find_next(facts: DeliveryFacts, due: Next, extras: _Extras) -> datetime | None:
    match due:
        case Next.SCHEDULE:
            asked = None if extras.asked is None else extras.asked.wait
            return facts.schedule.find_due_at(facts.attempts + 1, extras.now, extras.jitter, asked)
        case Next.NOW | Next.FRESH:
            return extras.now
        case Next.AS_BEFORE:
            return facts.next_attempt_at
    return None


def build_delivery_diagram() -> str:
    """Both tables as one mermaid state diagram, an arrow per pair of states with what leads there.

    Redelivers and tests are left out: they are extra attempts beside the life of a delivery, not states of it.
    """
    arrows: dict[tuple[State, State], list[str]] = {}
    for (state, event), change in LIFECYCLE.items():
        if change.state is not None:
            arrows.setdefault((state, change.state), []).append(event)
    for recall, verdict in product((None, *Recall), Verdict):
        ending = TABLE[AttemptKind.SCHEDULED, recall, verdict]
        label = verdict if recall is None or verdict is Verdict.ACCEPTED else f"recalled ({recall})"
        for to in (State.PENDING, State.RETRYING) if ending.state is None else (ending.state,):
            arrows.setdefault((State.IN_FLIGHT, to), []).append(label)
    lines = [f"    {start} --> {end}: {', '.join(dict.fromkeys(labels))}" for (start, end), labels in arrows.items()]
    born = [f"    [*] --> {state}" for state in (State.PENDING, State.HELD, State.FAILED)]
    return "\n".join(["stateDiagram-v2", *born, *lines, ""])
