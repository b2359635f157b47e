"""Runs of jobs that ended when nobody wanted their message: the message is made later, from what is stored.

Belongs here: finding such runs for a replay, making their messages, and noting that they are made. Does not belong here:
the deliveries (``replays``) and what a body says (``domain.messages``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from service.domain.batches import Batch
from service.domain.identity import job_message_id
from service.domain.jobs import Job
from service.domain.profiles import EXPIRED, ProfileSet
from service.domain.routing import Subscriber, route_job
from service.domain.webhooks import Scope
from service.ingest.bodies import build_job_message
from service.ports import NewMessage
from service.store.batch_rows import decode_batch
from service.store.codes import Scope as ScopeCode
from service.store.codes import WebhookKind
from service.store.database import Row, Session
from service.store.job_rows import decode_job
from service.store.webhooks import StoredWebhook
from service.store.work import save_work

Span = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class ToldRuns:
    """A page of jobs: how many runs had ended in the span, the messages to send, and where the next page begins.

    ``messages`` are rows as ``build_delivery`` takes them; ``made`` are those that did not exist before. An empty
    ``last_job_id`` ends the list.
    """

    ended: int
    messages: Sequence[Mapping[str, object]]
    made: Sequence[NewMessage]
    last_job_id: str


def wants_jobs(webhook: StoredWebhook) -> bool:
    """Tell whether any message about a job can match the webhook's filters."""
    filters = webhook.settings.filters
    wanted = not filters.scopes or Scope.JOB in filters.scopes
    return webhook.kind is WebhookKind.ACCOUNT and bool(filters.event_types) and wanted


async def tell_of_runs(
    session: Session, profiles: ProfileSet, webhook: StoredWebhook, span: Span, after: str, limit: int
) -> ToldRuns:
    """Go through the next ``limit`` jobs of the webhook's tenant; make the messages that it would have got."""
    page = await session.fetch("replay_list_untold", webhook.tenant_id, after, limit, *span, webhook.webhook_key)
    ended = [row["job_id"] for row in page if row["untold"]]
    jobs = await _lock_ended(session, webhook.tenant_id, ended, span)
    batches = await _list_batches(session, jobs)
    wanted = [job for job in jobs if _is_wanted(job, profiles, webhook, batches.get(job.batch_key or 0))]
    known = await _list_known(session, wanted)
    untold = [job for job in wanted if _message_id(job) not in known and not job.message_made]
    body_at = await session.value("transaction_now")
    made = await _make(session, profiles, untold, batches, body_at)
    live = [row for row in known.values() if row["has_body"]]
    last = page[-1]["job_id"] if len(page) == limit else ""
    return ToldRuns(len(ended), [*live, *(_as_row(message, body_at) for message in made)], made, last)


async def _lock_ended(session: Session, tenant_id: str, job_ids: Sequence[str], span: Span) -> list[Job]:
    """Lock the jobs in key order, as ingest does; one that a rerun has taken back meanwhile is left out."""
    if not job_ids:
        return []
    rows = await session.fetch("jobs_lock", [tenant_id] * len(job_ids), job_ids)
    jobs = [decode_job(row) for row in rows]
    return [j for j in jobs if j.phase.terminal and j.finished_at is not None and span[0] <= j.finished_at < span[1]]


async def _list_batches(session: Session, jobs: Sequence[Job]) -> dict[int, Batch]:
    keys = sorted({job.batch_key for job in jobs if job.batch_key is not None})
    rows = await session.fetch("batches_by_keys", keys) if keys else []
    return {batch.key: batch for batch in map(decode_batch, rows) if not batch.ended}


def _is_wanted(job: Job, profiles: ProfileSet, webhook: StoredWebhook, batch: Batch | None) -> bool:
    subscriber = Subscriber(webhook.webhook_key, webhook.webhook_id, webhook.lane, webhook.settings.filters)
    route = route_job(
        job,
        profiles.choose(job.source),
        {webhook.webhook_id: subscriber},
        batch_name=batch.name if batch else None,
        expired=job.source_status == EXPIRED,
    )
    return subscriber in route.webhooks


async def _list_known(session: Session, jobs: Sequence[Job]) -> dict[str, Row]:
    """Return the messages that these runs have already, by id: made after the span, for somebody else."""
    rows = await session.fetch("messages_list", [_message_id(job) for job in jobs]) if jobs else []
    return {row["message_id"]: row for row in rows}


async def _make(
    session: Session, profiles: ProfileSet, jobs: Sequence[Job], batches: Mapping[int, Batch], body_at: datetime
) -> list[NewMessage]:
    if not jobs:
        return []
    messages = [build_job_message(j, profiles.choose(j.source), batches.get(j.batch_key or 0)) for j in jobs]
    for job in jobs:
        job.message_made = True
    await save_work(session, jobs, messages, body_at)
    return messages


def _as_row(message: NewMessage, body_at: datetime) -> Mapping[str, object]:
    return {
        "message_id": message.message_id,
        "body_at": body_at,
        "type": message.type,
        "scope": ScopeCode.JOB,
        "batch_key": message.batch_key,
        "job_id": message.job_id,
        "generation": message.generation,
    }


def _message_id(job: Job) -> str:
    return job_message_id(job.tenant_id, job.job_id, job.generation)
