"""What delivery asks of tracing, when tracing is on; ``service.telemetry.spans`` has it. Off, nobody is asked at all.

Belongs here: the protocol. Does not belong here: contexts that are only passed on (``service.domain.traces``).
"""

from __future__ import annotations

from typing import Protocol

from service.delivery.entries import Entry
from service.delivery.ready import ReadyDelivery
from service.domain.attempts import Outcome


class AttemptSpan(Protocol):
    """One attempt under way."""

    @property
    def trace(self) -> str:
        """The context that the receiver is told."""


class AttemptSpans(Protocol):
    """Spans of attempts. One that is never ended (a fault of our own, a lost process) is not exported."""

    def begin(self, row: ReadyDelivery, entry: Entry) -> AttemptSpan:
        """An attempt starts, in the trace of its message."""

    def end(self, row: ReadyDelivery, entry: Entry, outcome: Outcome, span: AttemptSpan | None) -> AttemptSpan:
        """An attempt has ended; one that never came to sending has no span yet and gets it now."""
