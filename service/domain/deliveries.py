"""A delivery's states and reasons, and what moves it other than the end of an attempt.

Belongs here: the lifecycle table (claim, pause, supersede, cancel, …), which calls of the API a state allows, and the
state diagram. These moves are made by SQL, many rows at a time; a test holds every statement to this table. Does not
belong here: what an attempt's outcome leads to (``outcomes``).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from service.domain.webhooks import WebhookState

if TYPE_CHECKING:
    from collections.abc import Mapping


class State(StrEnum):
    """The eight states of a delivery."""

    PENDING = "pending"
    IN_FLIGHT = "in_flight"
    RETRYING = "retrying"
    HELD = "held"
    DELIVERED = "delivered"
    FAILED = "failed"
    SUPERSEDED = "superseded"
    CANCELED = "canceled"


class Reason(StrEnum):
    """Why a delivery is in the state it is in; states that explain themselves have none."""

    EXHAUSTED = "exhausted"
    URL_REFUSED = "url_refused"
    GONE = "gone"  # a one-shot only: there is no webhook to disable
    DESTINATION_MISSING = "destination_missing"
    HELD_TOO_LONG = "held_too_long"
    TEST_FAILED = "test_failed"
    PAUSED = "paused"
    DISABLED = "disabled"
    NO_SIGNING_KEY = "no_signing_key"
    UNDECRYPTABLE = "undecryptable"
    INTERNAL_ERROR = "internal_error"
    BATCH_DELETED = "batch_deleted"
    WEBHOOK_DELETED = "webhook_deleted"
    BY_REQUEST = "by_request"
    BODY_GONE = "body_gone"  # destroyed, or older than it is kept


class Recall(StrEnum):
    """A flag on a delivery that was on the wire when something happened: what it becomes unless the answer is 2xx."""

    CANCELED = "canceled"
    SUPERSEDED = "superseded"
    PAUSED = "paused"
    DISABLED = "disabled"
    RESTART = "restart"  # its URL was replaced, or somebody asked for it again: a fresh schedule


class Event(StrEnum):
    """What can happen to a delivery between attempts."""

    CLAIM = "claim"
    SUPERSEDE = "supersede"
    CANCEL = "cancel"
    PAUSE = "pause"
    DISABLE = "disable"
    RELEASE = "release"
    RESTART = "restart"
    EXPIRE = "expire"
    AGE_OUT = "age_out"


class Change(NamedTuple):
    """What an event does: a new ``state`` (None: it stays) with its reason, or a ``recall`` flag, or ``clears`` one.

    A ``cancel`` takes its reason from whoever cancels.
    """

    state: State | None = None
    reason: Reason | None = None
    recall: Recall | None = None
    clears: frozenset[Recall] = frozenset()


FINISHED: Final = frozenset({State.DELIVERED, State.FAILED, State.SUPERSEDED, State.CANCELED})
WAITING: Final = frozenset({State.PENDING, State.RETRYING, State.HELD})
HOLDS: Final = frozenset({Recall.PAUSED, Recall.DISABLED})

_DUE: Final[Mapping[Event, Change]] = {
    Event.CLAIM: Change(State.IN_FLIGHT),
    Event.SUPERSEDE: Change(State.SUPERSEDED),
    Event.CANCEL: Change(State.CANCELED),
    Event.PAUSE: Change(State.HELD, Reason.PAUSED),
    Event.DISABLE: Change(State.HELD, Reason.DISABLED),
    Event.RESTART: Change(State.PENDING),
    Event.EXPIRE: Change(State.FAILED, Reason.EXHAUSTED),
}

# Every pair that is not here changes nothing.
LIFECYCLE: Final[Mapping[tuple[State, Event], Change]] = {
    **{(State.PENDING, event): change for event, change in _DUE.items()},
    **{(State.RETRYING, event): change for event, change in _DUE.items()},
    (State.IN_FLIGHT, Event.SUPERSEDE): Change(recall=Recall.SUPERSEDED),
    (State.IN_FLIGHT, Event.CANCEL): Change(recall=Recall.CANCELED),
    (State.IN_FLIGHT, Event.PAUSE): Change(recall=Recall.PAUSED),
    (State.IN_FLIGHT, Event.DISABLE): Change(recall=Recall.DISABLED),
    (State.IN_FLIGHT, Event.RESTART): Change(recall=Recall.RESTART),
    (State.IN_FLIGHT, Event.RELEASE): Change(clears=HOLDS),
    (State.HELD, Event.SUPERSEDE): Change(State.SUPERSEDED),
    (State.HELD, Event.CANCEL): Change(State.CANCELED),
    (State.HELD, Event.RELEASE): Change(State.PENDING),
    (State.HELD, Event.AGE_OUT): Change(State.FAILED, Reason.HELD_TOO_LONG),
    (State.FAILED, Event.RESTART): Change(State.PENDING),
    (State.DELIVERED, Event.RESTART): Change(State.PENDING),  # renotify
}

_RECALL_RANK: Final = {recall: rank for rank, recall in enumerate(Recall)}


class CallRefused(StrEnum):
    """Why ``/redeliver`` or ``/cancel`` is refused (409); the value is the machine code."""

    IN_FLIGHT = "in_flight"
    CANCELED = "canceled"
    WEBHOOK_PAUSED = "webhook_paused"
    WEBHOOK_DISABLED = "webhook_disabled"
    WEBHOOK_MISSING = "webhook_missing"
    DELIVERED = "already_delivered"
    SUPERSEDED = "superseded"
    FINISHED = "finished"


_REDELIVER_NEVER: Final = {State.IN_FLIGHT: CallRefused.IN_FLIGHT, State.CANCELED: CallRefused.CANCELED}
_REDELIVER_FORCED: Final = {State.DELIVERED: CallRefused.DELIVERED, State.SUPERSEDED: CallRefused.SUPERSEDED}
_REDELIVER_WEBHOOK: Final = {
    None: CallRefused.WEBHOOK_MISSING,
    WebhookState.PAUSED: CallRefused.WEBHOOK_PAUSED,
    WebhookState.DISABLED: CallRefused.WEBHOOK_DISABLED,
}


def find_change(state: State, event: Event) -> Change | None:
    """What this event does to a delivery in this state; None when nothing."""
    return LIFECYCLE.get((state, event))


def combine_recalls(old: Recall | None, new: Recall) -> Recall:
    """The flag that stays when two things happen while one attempt is on the wire: the more final one."""
    return new if old is None else min(old, new, key=_RECALL_RANK.__getitem__)


def find_redeliver_refusal(state: State, webhook: WebhookState | None, *, force: bool) -> CallRefused | None:
    """Why a redeliver of a delivery in this state to this webhook is refused; None when it may go."""
    return (
        _REDELIVER_NEVER.get(state)
        or _REDELIVER_WEBHOOK.get(webhook)
        or (None if force else _REDELIVER_FORCED.get(state))
    )


def find_cancel_refusal(state: State) -> CallRefused | None:
    """Why a cancel is refused: only what waits can be canceled by a caller."""
    if state in WAITING:
        return None
    return CallRefused.IN_FLIGHT if state is State.IN_FLIGHT else CallRefused.FINISHED
