"""From a run or a batch that has finished to its message, as bytes.

Belongs here: type, id, link and body of a message; replays make those of runs the same way. Does not belong here: what a
body says (``domain.messages``), and who gets it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import orjson

from service.domain.batches import Batch
from service.domain.identity import job_message_id
from service.domain.jobs import Job
from service.domain.messages import RawJson, build_batch_body, build_job_body
from service.domain.profiles import Profile
from service.domain.webhooks import Scope
from service.ports import NewMessage


def encode_json(value: Mapping[str, object]) -> bytes:
    """Encode a body: UTF-8, keys in the order given, raw JSON passed through."""
    return orjson.dumps(value, default=_encode_raw, option=orjson.OPT_PASSTHROUGH_DATACLASS)


def _encode_raw(value: object) -> orjson.Fragment:
    if isinstance(value, RawJson):
        return orjson.Fragment(value.text)
    raise TypeError(type(value).__name__)


def build_job_message(job: Job, profile: Profile, batch: Batch | None, trace: str | None = None) -> NewMessage:
    """Make the message of a run that has ended; ``batch`` is the job's live batch, if any, ``trace`` what it continues."""
    assert job.finished_at is not None
    message_type = profile.find_message_type(Scope.JOB, job.kind)
    link = profile.find_link(Scope.JOB, _link_fields_of_job(job, batch)) if profile.links else None
    body = build_job_body(job, batch, message_type=message_type, link=link, encode=encode_json)
    return NewMessage(
        job_message_id(job.tenant_id, job.job_id, job.generation),
        job.tenant_id,
        message_type,
        "job",
        batch.key if batch and batch.key > 0 else None,
        job.job_id,
        job.generation,
        profile.name,
        job.finished_at,
        body,
        trace=trace,
    )


def build_batch_message(
    batch: Batch, members: Sequence[Job], profile: Profile, cap: int, trace: str | None
) -> NewMessage:
    """Make the message of a batch's newest finish; ``members`` newest finish first, ``cap`` in bytes of the body."""
    assert batch.completed_at is not None
    assert batch.finish_message_id is not None
    link = profile.find_link(Scope.BATCH, _link_fields_of_batch(batch)) if profile.links else None
    body = build_batch_body(batch, members, message_type=profile.default_type, link=link, cap=cap, encode=encode_json)
    return NewMessage(
        batch.finish_message_id,
        batch.tenant_id,
        profile.default_type,
        "batch",
        batch.key,
        None,
        batch.finish,
        profile.name,
        batch.completed_at,
        body,
        trace=trace,
    )


def _link_fields_of_batch(batch: Batch) -> dict[str, object]:
    return {
        "tenant_id": batch.tenant_id,
        "source": batch.source,
        "status": batch.status,
        "generation": batch.generation,
        "batch_name": batch.name,
        "batch_id": batch.incarnation_id,
        "name": batch.name,
        "id": batch.incarnation_id,
    }


def _link_fields_of_job(job: Job, batch: Batch | None) -> dict[str, object]:
    return {
        "tenant_id": job.tenant_id,
        "source": job.source,
        "status": job.phase.status,
        "generation": job.generation,
        "batch_name": batch.name if batch else None,
        "batch_id": batch.incarnation_id if batch else None,
        "job_id": job.job_id,
        "subject_id": job.subject_id,
        "subject_status": job.subject_status,
        "kind": job.kind,
        "attempts": job.attempts or 0,
        "stage": job.stage,
        "source_status": job.source_status,
        "error_code": job.error_code,
        "previous_job_id": job.previous_job_id,
    }
