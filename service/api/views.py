"""Rows and domain values as answers.

Belongs here: filling the models of ``answers``, and hiding what a caller must not see. Does not belong here: reading.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from service.api import answers
from service.domain.attempts import UNREACHABLE, describe_for_tenants, name_for_tenants
from service.domain.batches import Batch
from service.domain.jobs import Job
from service.domain.webhooks import WebhookSettings, describe_standing
from service.store.batches import SeenBatch
from service.store.database import Row
from service.store.delivery_views import SeenDelivery
from service.store.keys import StoredKey
from service.store.signing_keys import public_key
from service.store.webhooks import StoredWebhook

COUNT_CAP = 10_000
MASK = "***"
_URL = re.compile(r"([a-z][a-z0-9+.-]*:)//([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.IGNORECASE | re.DOTALL)
_HOST = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[^:@\[\]\\]+)(?::[0-9]*)?")


def mask_url(url: str) -> str:
    """Show a URL without user, password and fragment, and without its query's content.

    What an event named is stored as it came, and may be no URL at all: then nothing of it is shown.
    """
    parts = _URL.fullmatch(url)
    host = parts[2].rpartition("@")[2] if parts else ""
    if parts is None or not _HOST.fullmatch(host):
        return MASK
    return f"{parts[1]}//{host}{parts[3]}" + (f"?{MASK}" if parts[4] else "")


def describe_webhook(webhook: StoredWebhook, *, reveal: bool, operator: bool) -> dict[str, Any]:
    """Return the fields that every kind of webhook shows."""
    settings = webhook.settings
    return {
        "webhook_id": webhook.webhook_id,
        "kind": webhook.kind.word,
        "url": None if webhook.broken else (settings.url if reveal else mask_url(settings.url)),
        "description": settings.description or None,
        "custom_header_names": [name for name, _ in settings.custom_headers],
        "signing": settings.signing.value,
        "public_key": public_key(webhook.keys.ed25519[0].key) if webhook.keys.ed25519 else None,
        "retry_schedule": None if settings.retry_schedule is None else list(settings.retry_schedule),
        "timeout_seconds": settings.timeout_seconds,
        "max_in_flight": settings.max_in_flight,
        "rate_limit": settings.rate_limit,
        **_describe_state(webhook, operator=operator),
        "revision": webhook.revision,
        "created_at": webhook.created_at,
        "updated_at": webhook.written_at,
    }


def _describe_state(webhook: StoredWebhook, *, operator: bool) -> dict[str, Any]:
    standing = webhook.standing
    return {
        "state": standing.state.value,
        "reason": standing.reason.value if standing.reason else None,
        "state_detail": webhook.state_detail or describe_standing(standing, webhook.state_at),
        "state_at": webhook.state_at,
        "held_until": webhook.held_until,
        "last_error": shown_error(webhook.last_error, operator=operator),
        "last_success_at": webhook.last_success_at,
        "last_failure_at": webhook.last_failure_at,
    }


def describe_filters(settings: WebhookSettings) -> dict[str, Any]:
    """Return what an account webhook subscribes to."""
    filters = settings.filters
    return {
        "event_types": list(filters.event_types),
        "scopes": sorted(filters.scopes),
        "batch_names": list(filters.batch_names),
    }


def describe_pending(count: int) -> dict[str, Any]:
    """Return a count that stops at 10,000."""
    return {"pending_count": count, "capped": count >= COUNT_CAP}


def show_account_webhook(webhook: StoredWebhook, *, reveal: bool, operator: bool) -> answers.AccountWebhook:
    """Show a webhook in a list."""
    shown = describe_webhook(webhook, reveal=reveal, operator=operator)
    return answers.AccountWebhook(**shown, **describe_filters(webhook.settings))


def show_webhook_detail(
    webhook: StoredWebhook, pending: int, *, reveal: bool, operator: bool, secret: str | None = None
) -> answers.AccountWebhookDetail:
    """Show one webhook by its id."""
    return answers.AccountWebhookDetail(
        **describe_webhook(webhook, reveal=reveal, operator=operator),
        **describe_filters(webhook.settings),
        **describe_pending(pending),
        secret=secret,
    )


def describe_batch_webhook(
    webhook: StoredWebhook, batch: Batch, delivered: int | None, pending: int, *, reveal: bool, operator: bool
) -> dict[str, Any]:
    """Return the fields of a batch webhook."""
    settle = webhook.settings.settle_seconds
    return {
        **describe_webhook(webhook, reveal=reveal, operator=operator),
        "batch": batch.name,
        "batch_id": batch.incarnation_id,
        "settle_seconds": None if settle is None else int(settle),
        "notify_if_done": webhook.settings.notify_if_done,
        "all_done": batch.all_done,
        "generation": batch.generation,
        "last_delivered_generation": delivered,
        **describe_pending(pending),
    }


def audit_webhook(webhook: StoredWebhook | None) -> dict[str, Any] | None:
    """Describe a webhook for the audit log: no secrets, no header values, no query."""
    if webhook is None:
        return None
    shown = {**describe_webhook(webhook, reveal=False, operator=False), **describe_filters(webhook.settings)}
    for name in ("last_error", "last_success_at", "last_failure_at", "held_until"):
        del shown[name]
    settings = webhook.settings
    return {**shown, "settle_seconds": settings.settle_seconds, "notify_if_done": settings.notify_if_done}


def _describe_batch(seen: SeenBatch) -> dict[str, Any]:
    batch = seen.batch
    return {
        "name": batch.name,
        "batch_id": batch.incarnation_id,
        "status": batch.status,
        "all_done": batch.all_done,
        "generation": batch.generation,
        "last_delivered_generation": seen.delivered_generation,
        "counts": answers.Counts(
            total=batch.members, succeeded=batch.succeeded, failed=batch.failed, canceled=batch.canceled
        ),
        "declared_total": batch.declared_total,
        "created_at": batch.created_at,
        "started_at": batch.started_at,
        "completed_at": batch.completed_at if batch.all_done else None,
        "ended_at": batch.ended_at,
    }


def show_batch(seen: SeenBatch) -> answers.Batch:
    """Show a batch in a list."""
    return answers.Batch(**_describe_batch(seen))


def show_batch_detail(seen: SeenBatch, age_seconds: float | None) -> answers.BatchDetail:
    """Show one batch."""
    return answers.BatchDetail(**_describe_batch(seen), oldest_unfinished_seconds=age_seconds)


def describe_job(job: Job) -> dict[str, Any]:
    """Return the fields of a job."""
    return {
        "job_id": job.job_id,
        "generation": job.generation,
        "status": job.phase.status,
        "source_status": job.source_status,
        "stage": job.stage,
        "kind": job.kind,
        "subject_id": job.subject_id,
        "subject_status": job.subject_status,
        "attempts": job.attempts or 0,
        "error_code": job.error_code,
        "error_message": job.error_message,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "completed_at": job.finished_at if job.phase.terminal else None,
        "batch_generation": job.batch_generation,
        "result_url": job.result_url,
        "previous_job_id": job.previous_job_id,
        "webhook_id": job.webhook_id,
    }


def shown_outcome(outcome: str | None, *, operator: bool) -> str | None:
    """Name an outcome as the caller may know it."""
    return outcome if operator or outcome is None else name_for_tenants(outcome)


def shown_error(error: str | None, *, operator: bool) -> str | None:
    """Show ``class detail`` as workers wrote it, as far as the caller may know it."""
    return error if operator else describe_for_tenants(error)


def _describe_delivery(seen: SeenDelivery, *, operator: bool) -> dict[str, Any]:
    outcome = shown_outcome(seen.last_class, operator=operator)
    return {
        "delivery_id": f"dlv_{seen.delivery_id}",
        "webhook_id": seen.webhook_id,
        "message_id": seen.message_id,
        "type": seen.type,
        "scope": seen.scope,
        "batch": seen.batch_name,
        "batch_id": seen.batch_id,
        "job_id": seen.job_id,
        "generation": seen.generation,
        "state": seen.state,
        "reason": seen.reason,
        "origin": seen.extra,
        "attempt_count": seen.attempts,
        "created_at": seen.created_at,
        "next_attempt_at": seen.due_at,
        "finished_at": seen.finished_at,
        "last_class": outcome,
        "last_error": shown_error(seen.last_error, operator=operator),
    }


def show_delivery(seen: SeenDelivery, *, operator: bool) -> answers.Delivery:
    """Show a delivery in a list."""
    return answers.Delivery(**_describe_delivery(seen, operator=operator))


def show_delivery_detail(seen: SeenDelivery, attempts: Iterable[Row], *, operator: bool) -> answers.DeliveryDetail:
    """Show one delivery with its attempts."""
    shown = [show_attempt(row, operator=operator) for row in attempts]
    return answers.DeliveryDetail(**_describe_delivery(seen, operator=operator), attempts=shown)


def show_attempt(row: Row, *, operator: bool) -> answers.Attempt:
    """Show an attempt; of an unreachable name tenants see neither time nor detail."""
    outcome = shown_outcome(row["outcome"], operator=operator) or ""
    hidden = outcome == UNREACHABLE
    return answers.Attempt(
        number=row["number"],
        started_at=row["started_at"],
        duration_ms=None if hidden else row["duration_ms"],
        host=row["origin"],
        class_=outcome,
        status=row["status"],
        detail=None if hidden else row["detail"],
        flags=[] if hidden else list(row["flags"] or ()),
        answer=None if row["excerpt"] is None else escape(row["excerpt"]),
        next_attempt_at=row["next_at"],
        superfluous=row["superfluous"],
    )


def escape(excerpt: bytes) -> str:
    """Turn a receiver's bytes into text that no terminal or page can trip over."""
    text = excerpt.decode("utf-8", "backslashreplace")
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def describe_key(key: StoredKey) -> dict[str, Any]:
    """Return the fields of a key."""
    return {
        "key_id": key.key_id,
        "tenant_id": key.tenant_id,
        "roles": list(key.roles),
        "description": key.description,
        "created_at": key.created_at,
        "expires_at": key.expires_at,
        "revoked_at": key.revoked_at,
        "last_used_at": key.last_used_at,
    }
