"""Why a record cannot become an event: the closed set of reasons.

Belongs here: the vocabulary of refusal. Does not belong here: finding the reason (parsing) and keeping the record
(``service.store.dead_letters``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome


class Reason(StrEnum):
    """``dead_letters.reason``."""

    INVALID_JSON = "invalid_json"
    INVALID_UTF8 = "invalid_utf8"
    SCHEMA = "schema"
    UNKNOWN_TYPE = "unknown_type"
    UNKNOWN_SOURCE = "unknown_source"
    UNKNOWN_STATUS = "unknown_status"
    OVERSIZE = "oversize"
    INTERNAL_ERROR = "internal_error"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The verdict on a record that nobody can apply. ``detail`` is one short printable line for people."""

    reason: Reason
    detail: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """A record that is fine and asks for nothing: the outcome that it is counted as, and the event, if it holds one."""

    outcome: EventOutcome
    event: JobEvent | None = None


TOMBSTONE: Final = Skipped(EventOutcome.TOMBSTONE)


class Refused(Exception):
    """How the rules of parsing say no."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.letter = DeadLetter(reason, detail)


def quoted(text: str) -> str:
    """Return a producer's word as it may stand in a detail: short, printable, in quotes."""
    return ascii(text if len(text) <= 64 else text[:61] + "...")  # noqa: PLR2004 - what fits on a line
