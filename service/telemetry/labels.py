"""The closed label sets: every series that can exist is named here, so that it starts at 0 and no peer adds one."""

from __future__ import annotations

from service.domain.attempts import OutcomeClass
from service.domain.deliveries import FINISHED, State
from service.domain.jobs import EventOutcome
from service.domain.webhooks import WebhookState

EVENT_OUTCOMES = tuple(EventOutcome)
SCOPES = ("batch", "job", "none")  # none: test and operational messages
FINISHED_STATES = tuple(state.value for state in State if state in FINISHED)
WEBHOOK_STATES = tuple(state.value for state in WebhookState)
ANOMALIES = ("negative_span", "decoration_dropped", "two_destinations", "missed_records", "batch_conflict")
OTHER = "other"
OWN_FAULTS = (
    *("descriptors", "memory", "local_ports", "egress_proxy"),  # the sender's
    *("key_store", "internal_error", OTHER),
)

NO_ANSWER = 0
_BY_HUNDREDS = {NO_ANSWER: "none", 1: "1xx", 2: "2xx", 3: "3xx", 4: "4xx", 5: "5xx"}
_USUAL_HUNDREDS = {
    OutcomeClass.DELIVERED: (2,),
    OutcomeClass.HTTP_ERROR: (1, 4, 5, 6),
    OutcomeClass.GONE: (4,),
    OutcomeClass.REDIRECT: (3,),
}


def usual_hundreds(kind: OutcomeClass) -> tuple[int, ...]:
    """The hundreds of the statuses that an outcome comes with; ``NO_ANSWER`` for those without one."""
    return _USUAL_HUNDREDS.get(kind, (NO_ANSWER,))


def status_class(hundreds: int) -> str:
    """``2xx`` for 2, ``other`` for 6 and above, ``none`` without an answer."""
    return _BY_HUNDREDS.get(hundreds, OTHER)
