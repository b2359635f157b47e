"""What shows that an id, a timestamp or a body is another than was signed, although it is well written.

Belongs here: the id that a body gets, the instants that may have been signed, and the service's own record of a message.
Pure. Does not belong here: fetching the record (``records``), and the judgement (``checking``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from service.domain.batches import Member
from service.domain.identity import batch_message_id, job_message_id
from service.domain.jobs import Phase

SPAN = 7_200  # seconds that are searched each way for the timestamp that was signed
QUARTER, MOST_ZONES = 900, 26 * 3_600  # zones differ by whole quarters of an hour, by 26 hours at most
WORK = 300_000_000  # bytes that the search may hash: a second or so
_OVERHEAD = 2_000  # what one signature costs beside its body, in bytes
_FINGERPRINT_BITS = 128
_PHASES = {phase.status: phase for phase in Phase if phase.terminal}


@dataclass(frozen=True, slots=True)
class Record:
    """What the service knows of a message id.

    ``known``: it has such a message. ``body``: None when it was expunged or has aged out. ``attempted_at``: unix seconds
    of the attempts that are on record, None when they could not be listed.
    """

    known: bool
    body: bytes | None = None
    attempted_at: tuple[int, ...] | None = None

    def attempted_near(self, timestamp: int) -> bool:
        """Tell whether an attempt was made at that second or the one beside it."""
        return any(abs(at - timestamp) <= 1 for at in self.attempted_at or ())


def derive_id(body: bytes) -> str | None:
    """Return the id that the service gives to the message of this body; None for one that tells too little.

    A batch's id is made of its members' runs, so the list must be whole; a test's is random, and so is that of a finish
    which was sent again under a new id.
    """
    try:
        document = orjson.loads(body)
        return None if document.get("test") else _derive(document["data"])
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError, UnicodeEncodeError):
        return None


def _derive(data: Mapping[str, Any]) -> str | None:
    if data["scope"] == "job":
        return job_message_id(data["tenant_id"], data["job"]["job_id"], data["job"]["generation"])
    if data["scope"] != "batch" or data["jobs_truncated"] or not data["jobs"]:
        return None
    weights = (_read_member(job).weight for job in data["jobs"])
    return batch_message_id(data["tenant_id"], data["batch"]["id"], sum(weights) % (1 << _FINGERPRINT_BITS))


def _read_member(job: Mapping[str, Any]) -> Member:
    if not isinstance(job["job_id"], str) or not isinstance(job["generation"], int):
        raise TypeError
    return Member(
        job["job_id"],
        job["generation"],
        _PHASES[job["status"]],
        dirty=False,
        created_at=None,
        started_at=None,
        completed_at=None,
    )


def list_moments(given: int | None, body: bytes, span: int) -> Iterator[int]:
    """Instants that may have been signed: the one that is given in another time zone, all within ``span`` seconds of it,
    and as many from the work's end on; fewer of them for a large body, so that a second or so suffices.
    """
    tries = min(span, WORK // ((len(body) + _OVERHEAD) * 4))
    if given is not None and span:
        zones = range(QUARTER, MOST_ZONES + 1, QUARTER)
        yield from (given + sign * step for step in (*zones, *range(1, tries + 1)) for sign in (-1, 1))
    finished = _read_finish(body)
    if finished is not None:
        yield from range(finished, finished + 2 * tries)


def _read_finish(body: bytes) -> int | None:
    try:
        return int(datetime.fromisoformat(orjson.loads(body)["timestamp"]).timestamp())
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, OverflowError):
        return None
