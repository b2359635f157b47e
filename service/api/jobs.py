"""Batches and jobs for those who poll: ``/v1/batches`` and ``/v1/jobs``."""

from __future__ import annotations

from service.api import answers
from service.api.batch_webhooks import batch_name
from service.api.calls import Answer, Call
from service.api.cursors import cut, read_number, write_number
from service.api.models import Page
from service.api.problems import not_found, rule_broken
from service.api.views import describe_job, show_batch, show_batch_detail, show_delivery
from service.domain.names import is_name
from service.store import batches, delivery_views
from service.store.batches import SeenBatch
from service.store.delivery_views import DeliveryFilter

_BATCHES = "batches"
_JOBS = "jobs"
_DELIVERIES_SHOWN = 50


async def list_batches(call: Call) -> Answer:
    """List batches, newest first; incarnations that were deleted have ``ended_at``."""
    page = call.query(Page)
    before = read_number(_BATCHES, page.cursor)
    found = await batches.list_batches(call.session, call.tenant_id, before, page.limit + 1)
    shown, more = cut(found, page.limit, lambda seen: write_number(_BATCHES, seen.batch.key))
    return Answer(200, answers.BatchList(data=[show_batch(seen) for seen in shown], next_cursor=more))


async def _get_batch(call: Call) -> SeenBatch:
    seen = await batches.find_batch(call.session, call.tenant_id, batch_name(call))
    if seen is None:
        raise not_found("batch")
    return seen


async def get_batch(call: Call) -> Answer:
    """Show the newest incarnation of a batch."""
    seen = await _get_batch(call)
    oldest = seen.oldest_unfinished_at
    age = None if oldest is None else max(0.0, (call.parts.clock.now() - oldest).total_seconds())
    return Answer(200, show_batch_detail(seen, age))


async def list_jobs(call: Call) -> Answer:
    """List the members of a batch, newest first: by when each job was first seen."""
    page, seen = call.query(Page), await _get_batch(call)
    before = read_number(_JOBS, page.cursor)
    found = await batches.list_jobs(call.session, seen.batch.key, before, page.limit + 1)
    members, more = cut(found, page.limit, lambda member: write_number(_JOBS, member[0]))
    shown = [answers.Job(**describe_job(job)) for _, job in members]
    return Answer(200, answers.JobList(data=shown, next_cursor=more))


async def get_job(call: Call) -> Answer:
    """Show a job with its newest deliveries."""
    job_id = call.path["job_id"]
    if not is_name(job_id):
        raise rule_broken("job_id", "invalid_name", "A job id is 1 to 255 characters, no control characters.")
    job = await batches.find_job(call.session, call.tenant_id, job_id)
    if job is None:
        raise not_found("job")
    batch = None if job.batch_key is None else await batches.find_batch_by_key(call.session, job.batch_key)
    narrow = DeliveryFilter(job_id=job_id)
    before = read_number("deliveries", None)
    found = await delivery_views.list_deliveries(call.session, call.tenant_id, narrow, before, _DELIVERIES_SHOWN)
    answer = answers.JobDetail(
        **describe_job(job),
        batch=batch.name if batch else None,
        batch_id=batch.incarnation_id if batch else None,
        deliveries=[show_delivery(seen, operator=call.operator) for seen in found.deliveries],
    )
    return Answer(200, answer)
