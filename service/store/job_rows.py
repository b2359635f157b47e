"""A job as a row and back: the columns that statements look at, and the rest as one JSON document.

The document is an array, so that it stays small: its layout is ``JobDoc``'s field order, to which fields may only be
added at the end.
"""

from __future__ import annotations

from datetime import datetime
from operator import attrgetter
from typing import Any

import msgspec

from service.domain.jobs import FIELDS, Job, Phase

_DOC_FIELDS = tuple(name for name in FIELDS if name not in {"subject_id", "created_at", "started_at"})
_FLAGS = (
    "ended_at",
    "named_generation",
    "entered",
    "message_made",
    "inherited_webhook_id",
)


class JobDoc(msgspec.Struct, array_like=True):
    """What ``jobs.doc`` holds. ``orders`` maps an order to the bits of the fields that it set."""

    orders: dict[int, int]
    source: str | None
    kind: str | None
    webhook_id: str | None
    previous_job_id: str | None
    metadata: str | None
    stage: str | None
    attempts: int | None
    source_status: str | None
    subject_status: str | None
    error_code: str | None
    error_message: str | None
    completed_at: datetime | None
    result_url: str | None
    webhook_url: str | None
    ended_at: datetime | None
    named_generation: int
    entered: bool
    message_made: bool
    inherited_webhook_id: str | None


_doc_values = attrgetter(*_DOC_FIELDS, *_FLAGS)
_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(JobDoc)


def encode_job(job: Job) -> bytes:
    """Return the document of ``jobs.doc``."""
    return _encoder.encode((_pack_orders(job.orders), *_doc_values(job)))


def decode_job(row: Any) -> Job:
    """Build the job from a row of ``jobs``."""
    doc = _decoder.decode(row["doc"])
    job = Job(
        row["tenant_id"],
        row["job_id"],
        generation=row["generation"],
        phase=Phase(row["phase"]),
        orders=_unpack_orders(doc.orders),
        subject_id=row["subject_id"],
        created_at=row["created_at"],
        started_at=row["started_at"],
        batch_key=row["batch_key"],
        batch_generation=row["batch_generation"],
        removed_generation=row["removed_generation"],
        stored=True,
    )
    for name in (*_DOC_FIELDS, *_FLAGS):
        setattr(job, name, getattr(doc, name))
    return job


def inherited_webhook_id(doc: bytes) -> str | None:
    """Return the id of the webhook that a later job of the same subject inherits from this document's job."""
    before = _decoder.decode(doc)
    return before.webhook_id or before.inherited_webhook_id


def job_row(job: Job) -> tuple[object, ...]:
    """Return a ``job_input``."""
    return (
        job.tenant_id,
        job.job_id,
        job.generation,
        int(job.phase),
        job.batch_key,
        job.batch_generation,
        job.removed_generation,
        job.subject_id,
        job.created_at,
        job.started_at,
        job.finished_at if job.phase.terminal else None,
        encode_job(job),
    )


def _pack_orders(orders: list[int]) -> dict[int, int]:
    packed: dict[int, int] = {}
    for position, order in enumerate(orders):
        if order:
            packed[order] = packed.get(order, 0) | 1 << position
    return packed


def _unpack_orders(packed: dict[int, int]) -> list[int]:
    orders = [0] * len(FIELDS)
    for order, bits in packed.items():
        for position in range(len(FIELDS)):
            if bits >> position & 1:
                orders[position] = order
    return orders
