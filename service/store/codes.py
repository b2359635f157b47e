"""The small closed sets as the tables hold them, and their words."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from service.domain.deliveries import State
from service.domain.webhooks import WebhookState


class Word(IntEnum):
    """An enum that is a smallint in a row and a lower-case word everywhere else."""

    @property
    def word(self) -> str:
        """The word used in JSON, logs and metrics."""
        return self.name.lower()


class LiveState(Word):
    """``deliveries.state``; a leased row is shown as ``in_flight``."""

    PENDING = 0
    RETRYING = 1
    HELD = 2


class DoneState(Word):
    """``deliveries_done.state``."""

    DELIVERED = 4
    FAILED = 5
    SUPERSEDED = 6
    CANCELED = 7


STATES: Final = {int(code): State(code.word) for code in (*LiveState, *DoneState)}


class WireFlag(Word):
    """``deliveries.flag``: what becomes of a delivery on the wire if its attempt does not succeed."""

    NONE = 0
    SUPERSEDED = 1
    CANCELED = 2
    HELD = 3
    RESTART = 4


class Extra(Word):
    """``deliveries.extra``."""

    ORDINARY = 0
    TEST = 1
    REPLAY = 2
    OPERATIONAL = 3


class Scope(Word):
    """``messages.scope``."""

    BATCH = 0
    JOB = 1
    NONE = 2


class WebhookKind(Word):
    """``webhooks.kind``."""

    BATCH = 0
    ACCOUNT = 1
    ONE_SHOT = 2


class WebhookStateCode(Word):
    """``webhooks.state``."""

    ENABLED = 0
    PAUSED = 1
    DISABLED = 2


WEBHOOK_STATES: Final = {int(code): WebhookState(code.word) for code in WebhookStateCode}


class BreakerCode(Word):
    """``webhook_health.breaker``."""

    CLOSED = 0
    OPEN = 1
    HALF_OPEN = 2
