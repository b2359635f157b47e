"""The run of a job: what an event does to it (chapter 1, "Job rules").

Belongs here: statuses, their order, and the merge of one event into one job. Does not belong here: which batch a
reference means (``incarnations``), what a batch makes of its members (``batches``), who is told (``routing``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum, StrEnum
from operator import attrgetter
from typing import NamedTuple, Self

from service.domain.events import EventType, JobEvent


class Phase(IntEnum):
    """How far a run has come. ``STORED`` is known but not yet a member of its batch (``pending_upload``).

    ``status`` is the public word; None for a run that is only stored. ``rank`` is the position in the order stored <
    queued < processing < terminal; the three ends are equal. ``terminal`` is true for the three ends.
    """

    status: str | None
    rank: int
    terminal: bool

    def __new__(cls, value: int, status: str | None = None) -> Self:
        """Members carry plain attributes: every event reads them several times."""
        phase = int.__new__(cls, value)
        phase._value_ = value
        phase.status = status
        phase.rank = min(value, 3)
        phase.terminal = phase.rank == 3  # noqa: PLR2004 - the highest rank
        return phase

    STORED = 0, None
    QUEUED = 1, "queued"
    PROCESSING = 2, "processing"
    SUCCEEDED = 3, "succeeded"
    FAILED = 4, "failed"
    CANCELED = 5, "canceled"


ENDS = {"succeeded": Phase.SUCCEEDED, "failed": Phase.FAILED, "canceled": Phase.CANCELED}

# Fields that a higher generation keeps, and fields that it resets. The position in FIELDS is the position in ``orders``.
KEPT = ("source", "subject_id", "kind", "webhook_id", "previous_job_id", "metadata")
RESET = (
    "stage",
    "attempts",
    "source_status",
    "subject_status",
    "error_code",
    "error_message",
    "created_at",
    "started_at",
    "completed_at",
    "result_url",
    "webhook_url",
)
FIELDS = KEPT + RESET
_KEPT = tuple(enumerate(KEPT))
_RESET = tuple(enumerate(RESET, len(KEPT)))
_VALUES = attrgetter(*FIELDS)
_LOWEST = 1  # an order that only fills what is empty, and that every other event's goes before
_ERROR_CODE_AT = FIELDS.index("error_code")
_DESTINATIONS = ("webhook_id", "webhook_url")
_DESTINATIONS_AT = tuple((FIELDS.index(name), name) for name in _DESTINATIONS)


class EventOutcome(StrEnum):
    """What became of an event: the ``outcome`` label of ``job_events_total``."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    STALE = "stale"
    CONFLICT = "conflict"
    DEAD_LETTER = "dead_letter"
    TOMBSTONE = "tombstone"
    EXPIRED = "expired"
    REQUEUE_WITHOUT_GENERATION = "requeue_without_generation"


@dataclass(slots=True)
class Job:
    """A job and its current run. ``generation`` 0 means that no job event was seen yet.

    ``orders`` holds, field by field (``FIELDS``), the order of the event that set it: kept fields are ordered by
    (generation, rank, attempts), reset fields by (rank, attempts); 0 is an empty field. ``ended_at`` is the
    ``occurred_at`` of the event that ended the run. ``named_generation`` is the generation whose event named the batch.
    ``entered``: the job is counted in its batch's ``entered``. ``message_made``: the run's message exists.
    ``inherited_webhook_id`` came from an earlier job of the subject. ``stored``: there is a row already.
    """

    tenant_id: str
    job_id: str
    generation: int = 0
    phase: Phase = Phase.STORED
    orders: list[int] = field(default_factory=lambda: [0] * len(FIELDS))
    source: str | None = None
    subject_id: str | None = None
    kind: str | None = None
    webhook_id: str | None = None
    previous_job_id: str | None = None
    metadata: str | None = None
    stage: str | None = None
    attempts: int | None = None
    source_status: str | None = None
    subject_status: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    result_url: str | None = None
    webhook_url: str | None = None
    ended_at: datetime | None = None
    batch_key: int | None = None
    named_generation: int = 0
    removed_generation: int = 0
    entered: bool = False
    batch_generation: int | None = None
    message_made: bool = False
    inherited_webhook_id: str | None = None
    stored: bool = False

    @property
    def finished_at(self) -> datetime | None:
        """When the run ended: its own ``completed_at``, else the ``occurred_at`` of the event that ended it."""
        return self.completed_at or self.ended_at

    @property
    def member(self) -> bool:
        """True when the job counts in the batch that ``batch_key`` names."""
        return self.batch_key is not None and self.phase > Phase.STORED and self.generation > self.removed_generation


class Merged(NamedTuple):
    """What merging one event did. ``ended``: the run reached its end with this event. ``learned``: a destination was
    named after the end (``webhook_id`` or ``webhook_url``). ``anomalies``: kinds of ``event_anomalies_total``.
    """

    outcome: EventOutcome
    ended: bool = False
    learned: tuple[str, ...] = ()
    anomalies: tuple[str, ...] = ()


def merge(job: Job, event: JobEvent, status: str | None) -> Merged:
    """Merge a job event into ``job``; ``status`` is the public word that the event's profile makes of its status.

    Order is (generation, rank, attempts), never the clock; null never erases; of two ends the first one stays.
    """
    generation, phase = event.generation or 1, read_phase(event, status)
    if generation < job.generation:
        return _merge_past(job, event, _order(generation, phase, event))
    renewed = generation > job.generation
    if renewed:
        _renew(job, generation)
    return _merge_present(job, event, phase, renewed=renewed)


def fill_error_code(job: Job, find: Callable[[str | None, str | None], str | None]) -> None:
    """Where no event gave a code, the run's words may: made anew after each event, so the order of events is nothing.

    Such a code has no order, so that every given one goes before it.
    """
    if not job.orders[_ERROR_CODE_AT]:
        job.error_code = find(job.source_status if job.phase.terminal else None, job.subject_status)


def detach(job: Job) -> None:
    """Take the job out of a batch that was forgotten; its next event may name one as its first event could."""
    job.batch_key = job.batch_generation = None
    job.named_generation = job.removed_generation = 0
    job.entered = False


def read_phase(event: JobEvent, status: str | None) -> Phase:
    """Return the phase that a job event speaks of: its type decides, and a queued event's word ``none``."""
    if event.type is EventType.JOB_COMPLETED:
        return ENDS[status or ""]
    if event.type is EventType.JOB_STARTED:
        return Phase.PROCESSING
    return Phase.STORED if status == "none" else Phase.QUEUED


def _merge_past(job: Job, event: JobEvent, order: int) -> Merged:
    """A run that was overtaken only fills the fields that runs share."""
    had_webhook = job.webhook_id is not None
    _fill(job, event, _KEPT, order)
    learned = ("webhook_id",) if job.phase.terminal and not had_webhook and job.webhook_id else ()
    return Merged(EventOutcome.STALE, learned=learned)


def _renew(job: Job, generation: int) -> None:
    seen = job.generation
    job.generation = generation
    if not seen:
        return
    job.phase = Phase.STORED
    job.ended_at = None
    job.batch_generation = None
    job.message_made = False
    for position, name in _RESET:
        job.orders[position] = 0
        setattr(job, name, None)


def _merge_present(job: Job, event: JobEvent, phase: Phase, *, renewed: bool) -> Merged:
    ended = job.phase.terminal
    if ended and phase.terminal and phase is not job.phase:
        return Merged(EventOutcome.CONFLICT, learned=_learn(job, event, phase))
    requeued = ended and _requeued(job, event)
    learned = _learn(job, event, phase) if ended else ()
    if requeued:
        _fill(job, event, _KEPT + _RESET, _LOWEST)
        return Merged(EventOutcome.REQUEUE_WITHOUT_GENERATION, learned=learned)
    changed = _fill_run(job, event, phase) or renewed or bool(learned)
    outcome = _outcome(job, phase, changed=changed)
    if phase.rank > job.phase.rank:
        job.phase = phase
    if ended or not phase.terminal:
        return Merged(outcome, learned=learned)
    job.ended_at = event.occurred_at
    return Merged(outcome, ended=True, anomalies=_negative_spans(job))


def _outcome(job: Job, phase: Phase, *, changed: bool) -> EventOutcome:
    if phase.rank < job.phase.rank:
        return EventOutcome.STALE
    if changed or phase.rank > job.phase.rank:
        return EventOutcome.APPLIED
    return EventOutcome.DUPLICATE


def _requeued(job: Job, event: JobEvent) -> bool:
    """A queued event for a finished run that is no late copy: the producer forgot to raise the generation."""
    if event.type is not EventType.JOB_QUEUED:
        return False
    more_attempts = event.attempts is not None and event.attempts > (job.attempts or 0)
    created_again = None not in (event.created_at, job.created_at) and event.created_at != job.created_at
    return more_attempts or created_again


def _learn(job: Job, event: JobEvent, phase: Phase) -> tuple[str, ...]:
    """Fill destinations of a run that has ended already; a destination that it has stays."""
    learned = []
    for position, name in _DESTINATIONS_AT:
        value = getattr(event, name)
        if value is not None and getattr(job, name) is None:
            setattr(job, name, value)
            job.orders[position] = _order(job.generation if name in KEPT else 0, phase, event)
            learned.append(name)
    return tuple(learned)


def _fill_run(job: Job, event: JobEvent, phase: Phase) -> bool:
    changed = _fill(job, event, _KEPT, _order(job.generation, phase, event))
    return _fill(job, event, _RESET, _order(0, phase, event)) or changed


def _order(generation: int, phase: Phase, event: JobEvent) -> int:
    """Pack (generation, rank, attempts) into one integer; the state is never 0, which means an empty field.

    Rank takes two bits and attempts the 31 below them, so that the whole fits 64 bits.
    """
    packed = (generation << 33) | (phase.rank << 31) | (event.attempts or 0)
    return packed + 1 if generation == 0 else packed


def _fill(job: Job, event: JobEvent, fields: tuple[tuple[int, str], ...], order: int) -> bool:
    """Let the event set each field that is empty or was set by a lower order. Returns whether anything changed."""
    orders, values = job.orders, _VALUES(event)
    changed = False
    for position, name in fields:
        value = values[position]
        if value is None or order <= orders[position]:
            continue
        if name in _DESTINATIONS and job.phase.terminal and orders[position]:
            continue
        changed = changed or getattr(job, name) != value
        orders[position] = order
        setattr(job, name, value)
    return changed


def _negative_spans(job: Job) -> tuple[str, ...]:
    times = [at for at in (job.created_at, job.started_at, job.finished_at) if at is not None]
    return ("negative_span",) if times != sorted(times) else ()
