"""A batch incarnation as a row of ``batches`` and back."""

from __future__ import annotations

from typing import Any

import msgspec

from service.domain.batches import FINGERPRINT_BYTES, Batch

# The columns that a transaction may change, in the order that ``batches_insert`` and ``batches_update`` take them.
_CHANGING = (
    "incarnation_id",
    "adopted",
    "source",
    "ended_at",
    "ended_by",
    "sealed",
    "sealed_by",
    "declared_total",
    "declared_version",
    "entered",
    "members",
    "started",
    "succeeded",
    "failed",
    "canceled",
    "dirty",
    "dirty_canceled",
    "fingerprint",
    "created_at",
    "started_at",
    "completed_at",
    "times_stale",
    "has_leavers",
    "finish",
    "finish_message_id",
    "settle_due_at",
    "loud",
    "trace",
)
_IDENTITY = ("tenant_id", "name", "seq")
INSERT_COLUMNS = len(_IDENTITY) + len(_CHANGING)
UPDATE_COLUMNS = 1 + len(_CHANGING)


def decode_batch(row: Any) -> Batch:
    """Build the batch from a row of ``batches``."""
    values = {name: row[name] for name in (*_IDENTITY, *_CHANGING)}
    values["fingerprint"] = int.from_bytes(row["fingerprint"], "big")
    return Batch(key=row["batch_key"], settle_seconds=row["settle_seconds"], **values)


def new_batch_row(batch: Batch) -> tuple[object, ...]:
    """Return the columns for ``batches_insert``."""
    return (*(getattr(batch, name) for name in _IDENTITY), *_changing(batch))


def changed_batch_row(batch: Batch) -> tuple[object, ...]:
    """Return the columns for ``batches_update``."""
    return (batch.key, *_changing(batch))


def _changing(batch: Batch) -> tuple[object, ...]:
    values = {name: getattr(batch, name) for name in _CHANGING}
    values["fingerprint"] = batch.fingerprint.to_bytes(FINGERPRINT_BYTES, "big")
    return tuple(values.values())


def encode_event_ids(event_ids: tuple[str, ...]) -> str:
    """Return ``batch_leavers.event_ids``."""
    return _encoder.encode(event_ids).decode()


def decode_event_ids(text: str) -> tuple[str, ...]:
    """Return the ids of a leaver's events."""
    return _event_ids.decode(text)


_encoder = msgspec.json.Encoder()
_event_ids = msgspec.json.Decoder(tuple[str, ...])
