"""What a message says: bodies of both scopes, cut to the cap (chapter 3, "Body").

Belongs here: the fields and their order, and what is cut. Bytes come from an ``Encoder`` that the edge hands in, since
metadata has to pass through as the raw text it came in. Ids are made in ``identity``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from service.domain.batches import Batch
from service.domain.jobs import Job


@dataclass(frozen=True, slots=True)
class RawJson:
    """JSON text that goes into a body as it is."""

    text: str


Encoder = Callable[[Mapping[str, object]], bytes]
NO_METADATA = RawJson("{}")


def format_instant(at: datetime | None) -> str | None:
    """Format an aware instant as UTC with microseconds and ``Z``; None stays None."""
    if at is None:
        return None
    return (at if at.tzinfo is UTC else at.astimezone(UTC)).isoformat(timespec="microseconds")[:26] + "Z"


def build_job_body(job: Job, batch: Batch | None, *, message_type: str, link: str | None, encode: Encoder) -> bytes:
    """Return the body of a job message; ``batch`` is the job's live batch, if any."""
    data = {
        "scope": "job",
        "tenant_id": job.tenant_id,
        "job": {
            **_job_view(job),
            "kind": job.kind,
            "attempts": job.attempts or 0,
            "stage": job.stage,
            "error_message": job.error_message,
            "previous_job_id": job.previous_job_id,
            "subject_status": job.subject_status,
        },
        "batch": {"name": batch.name, "id": batch.incarnation_id} if batch else None,
        "links": _links(link),
    }
    return encode({"type": message_type, "timestamp": format_instant(job.finished_at), "data": data})


def build_batch_body(
    batch: Batch, jobs: Sequence[Job], *, message_type: str, link: str | None, cap: int, encode: Encoder
) -> bytes:
    """Return the body of the batch's newest finish, at most ``cap`` bytes.

    ``jobs`` are members, newest finish first: as many as can matter for the cap. Where they do not all fit, the list
    is cut and flagged; the counts always speak of the whole batch.
    """
    views = [encode({**_job_view(job), "batch_generation": job.batch_generation}) for job in jobs]
    frame = _encode_frame(batch, [], message_type, link, truncated=True, encode=encode)
    kept = _fitting(views, cap - len(frame) - 1)  # "false" is a byte longer than "true"
    truncated = len(kept) < batch.members
    fragments = [RawJson(view.decode()) for view in kept]
    return _encode_frame(batch, fragments, message_type, link, truncated=truncated, encode=encode)


def _encode_frame(
    batch: Batch, jobs: list[RawJson], message_type: str, link: str | None, *, truncated: bool, encode: Encoder
) -> bytes:
    data = {
        "scope": "batch",
        "tenant_id": batch.tenant_id,
        "batch": batch_view(batch),
        "counts": counts_view(batch),
        "jobs": jobs,
        "jobs_truncated": truncated,
        "links": _links(link),
    }
    return encode({"type": message_type, "timestamp": format_instant(batch.completed_at), "data": data})


def _fitting(views: Sequence[bytes], room: int) -> Sequence[bytes]:
    for number, view in enumerate(views):
        room -= len(view) + 1
        if room < 0:
            return views[:number]
    return views


def batch_view(batch: Batch) -> dict[str, object]:
    """Return the ``batch`` object of a body, which the API shows too."""
    return {
        "name": batch.name,
        "id": batch.incarnation_id,
        "generation": batch.generation,
        "status": batch.status,
        "all_done": batch.all_done,
        "created_at": format_instant(batch.created_at),
        "started_at": format_instant(batch.started_at),
        "completed_at": format_instant(batch.completed_at) if batch.all_done else None,
    }


def counts_view(batch: Batch) -> dict[str, object]:
    """Return the ``counts`` object of a body."""
    return {
        "total": batch.members,
        "succeeded": batch.succeeded,
        "failed": batch.failed,
        "canceled": batch.canceled,
    }


def _job_view(job: Job) -> dict[str, object]:
    return {
        "job_id": job.job_id,
        "subject_id": job.subject_id,
        "generation": job.generation,
        "status": job.phase.status,
        "source_status": job.source_status,
        "error_code": job.error_code,
        "created_at": format_instant(job.created_at),
        "started_at": format_instant(job.started_at),
        "completed_at": format_instant(job.finished_at if job.phase.terminal else None),
        "result_url": job.result_url,
        "metadata": RawJson(job.metadata) if job.metadata else NO_METADATA,
    }


def _links(link: str | None) -> dict[str, str]:
    return {"self": link} if link else {}
