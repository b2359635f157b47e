"""A job event after it was read and checked: what the state machines take.

Belongs here: the shape of an event and the closed set of its types. Reading bytes is ``service.ingest.parsing``. Events
are never changed after they were read; the classes are not frozen, since that costs 7 µs an event.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum


class EventType(StrEnum):
    """The six event types."""

    JOB_QUEUED = "job.queued"
    JOB_STARTED = "job.started"
    JOB_COMPLETED = "job.completed"
    JOB_REMOVED = "job.removed"
    BATCH_SEALED = "batch.sealed"
    BATCH_DELETED = "batch.deleted"


@dataclass(slots=True)
class BatchRef:
    """What an event says of its batch. ``id`` is the producer's; ``total`` and ``version`` as declared."""

    name: str
    id: str | None = None
    total: int | None = None
    version: int = 0


@dataclass(slots=True)
class JobEvent:
    """One event, decorations already dropped or cut where they were bad.

    ``job_id`` is empty for ``batch.*``. ``generation`` and ``attempts`` are None when the event does not say; a job
    event without a generation means 1. ``status`` is the producer's own word. Times are aware UTC. ``metadata`` is
    the raw JSON text of an object, never re-encoded. ``anomalies`` are kinds of ``event_anomalies_total`` that reading
    found. ``silent`` is set when the record is from before the service's first start and too old to notify about.
    ``trace`` is its context (``service.domain.traces``).
    """

    event_id: str
    type: EventType
    source: str
    occurred_at: datetime
    tenant_id: str
    job_id: str = ""
    batch: BatchRef | None = None
    generation: int | None = None
    attempts: int | None = None
    stage: str | None = None
    status: str | None = None
    kind: str | None = None
    subject_id: str | None = None
    subject_status: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    previous_job_id: str | None = None
    webhook_id: str | None = None
    webhook_url: str | None = None
    result_url: str | None = None
    metadata: str | None = None
    anomalies: tuple[str, ...] = ()
    silent: bool = False
    trace: str | None = field(default=None, compare=False)

    @property
    def source_status(self) -> str | None:
        """The producer's word, under the name that a run keeps it by."""
        return self.status
