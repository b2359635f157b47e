"""What a message is about, read from its own body, for the few attempts that get a log line.

Belongs here: the batch and the job that a body names. A queue row holds keys only: the hot path carries nothing for
lines that are mostly not written.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Struct


class _Data(Struct, gc=False):
    batch: Any = None
    job: Any = None
    job_id: str | None = None


class _Body(Struct, gc=False):
    data: _Data


_decoder = msgspec.json.Decoder(_Body)


def describe_subject(body: bytes | None) -> dict[str, str]:
    """``batch`` (its name) and ``job_id``, as far as the body names them."""
    try:
        data = _decoder.decode(body or b"{}").data
    except msgspec.DecodeError:  # an operator may have written it by hand
        return {}
    batch = data.batch.get("name") if isinstance(data.batch, dict) else data.batch
    job_id = data.job.get("job_id") if isinstance(data.job, dict) else data.job_id
    return {name: value for name, value in (("batch", batch), ("job_id", job_id)) if isinstance(value, str)}
