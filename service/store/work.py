"""Jobs as they stand now, and messages with their bodies: written together, since most transactions write both.

Belongs here: that one statement. Does not belong here: deliveries (``queueing``) and what a row of ``jobs`` holds
(``job_rows``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from service.domain.jobs import Job
from service.ports import Conflict, NewMessage
from service.store.codes import Scope
from service.store.database import Session
from service.store.job_rows import job_row

_SCOPES = {scope.word: int(scope) for scope in Scope}


async def save_work(
    session: Session, jobs: Iterable[Job], messages: Sequence[NewMessage], body_at: datetime
) -> set[str]:
    """Store jobs and messages, bodies in the partition of ``body_at``; return the ids of messages that were not known.

    Raises Conflict when another transaction stored one of the jobs first.
    """
    new: list[tuple[object, ...]] = []
    known: list[tuple[object, ...]] = []
    for job in jobs:
        (known if job.stored else new).append(job_row(job))
    if not (new or known or messages):
        return set()
    stored = await session.find("work_save", new, known, list(map(_message_row, messages)), body_at)
    assert stored is not None
    if stored["jobs"] < len(new):
        msg = "another transaction stored the same job"
        raise Conflict(msg)
    return set(stored["messages"])


async def insert_messages(session: Session, messages: Sequence[NewMessage], body_at: datetime) -> set[str]:
    """Store messages alone, as ``save_work`` does."""
    return await save_work(session, (), messages, body_at)


def _message_row(m: NewMessage) -> tuple[object, ...]:
    """Return a ``message_input``."""
    return (
        m.message_id,
        m.tenant_id,
        m.type,
        _SCOPES[m.scope],
        m.batch_key,
        m.job_id,
        m.generation,
        m.source,
        m.finished_at,
        m.body,
        m.renotified,
        m.trace,
    )
