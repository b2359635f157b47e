"""The table of all calls: the router, the checks and the OpenAPI document are made from it.

Belongs here: one entry a call. Does not belong here: any logic.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from service.api import (
    answers,
    audit,
    batch_webhooks,
    deliveries,
    documents,
    events,
    jobs,
    keys,
    messages,
    models,
    operator,
    replays,
    signing_keys,
    stats,
    webhooks,
)
from service.api.calls import KIB, Handle, Kind, Operation, Role

BATCH = "/v1/batches/{batch_name}"
HOOK = f"{BATCH}/webhook"
WEBHOOK = "/v1/webhooks/{webhook_id}"
DELIVERY = "/v1/deliveries/{delivery_id}"
PAUSES = "/v1/operator/pauses"
EVENTS_LIMIT = 4 * KIB * KIB


def _get(path: str, name: str, summary: str, handle: Handle, answer: Any, **more: Any) -> Operation:
    return Operation("GET", path, name, summary, handle, answer=answer, **more)


def _write(method: str, path: str, name: str, summary: str, handle: Handle, **more: Any) -> Operation:
    return Operation(method, path, name, summary, handle, Role.WRITE, Kind.WRITE, **more)


def _remove(path: str, name: str, summary: str, handle: Handle, **more: Any) -> Operation:
    return Operation("DELETE", path, name, summary, handle, Role.WRITE, Kind.WRITE, statuses=(204,), **more)


def _change(path: str, name: str, summary: str, handle: Handle, body: Any, **more: Any) -> Operation:
    """Build a ``POST`` whose body may be left out."""
    return _write("POST", path, name, summary, handle, body=body, body_required=False, **more)


def _test(path: str, name: str, handle: Handle) -> Operation:
    return Operation(
        "POST", path, name, "Send one test message", handle, Role.WRITE, Kind.TEST,
        answer=answers.TestAnswer, statuses=(200, 202),
    )  # fmt: skip


def _for_operators(operation: Operation) -> Operation:
    return replace(operation, role=Role.OPERATOR, tenant=False, tag="operator")


def _tagged(tag: str, *operations: Operation) -> tuple[Operation, ...]:
    return tuple(replace(operation, tag=tag) for operation in operations)


OPERATIONS: tuple[Operation, ...] = (
    *_tagged(
        "batches",
        _write(
            "PUT",
            HOOK,
            "batch_webhook_put",
            "Register the webhook of a batch",
            batch_webhooks.put,
            body=models.BatchWebhookPut,
            answer=answers.BatchWebhookRegistered,
            statuses=(201, 200),
        ),
        _get(
            HOOK,
            "batch_webhook_get",
            "Show the webhook of a batch",
            batch_webhooks.get,
            answers.BatchWebhook,
            query=models.Reveal,
        ),
        _remove(HOOK, "batch_webhook_delete", "Retire the webhook of a batch", batch_webhooks.delete),
        _test(f"{HOOK}/test", "batch_webhook_test", batch_webhooks.test),
        _change(
            f"{HOOK}/rotate-secret",
            "batch_webhook_rotate_secret",
            "Make a new secret",
            batch_webhooks.rotate,
            models.RotateSecret,
            answer=answers.SecretAnswer,
        ),
        _write(
            "POST",
            f"{HOOK}/revoke-previous-secret",
            "batch_webhook_revoke_previous_secret",
            "End the overlap of a rotation",
            batch_webhooks.revoke,
            statuses=(204,),
        ),
        _write(
            "POST",
            f"{HOOK}/enable",
            "batch_webhook_enable",
            "Release deliveries, one trial first",
            batch_webhooks.enable,
            answer=answers.AccountWebhookDetail,
        ),
        _write(
            "POST",
            f"{HOOK}/pause",
            "batch_webhook_pause",
            "Hold deliveries",
            batch_webhooks.pause,
            answer=answers.AccountWebhookDetail,
        ),
        _change(
            f"{BATCH}/renotify",
            "batch_renotify",
            "Send the newest finish again",
            batch_webhooks.renotify,
            models.Renotify,
            answer=answers.Renotified,
            statuses=(202,),
        ),
        _get("/v1/batches", "batch_list", "List batches", jobs.list_batches, answers.BatchList, query=models.Page),
        _get(BATCH, "batch_get", "Show a batch", jobs.get_batch, answers.BatchDetail),
        _get(
            f"{BATCH}/jobs",
            "batch_jobs",
            "List the members of a batch",
            jobs.list_jobs,
            answers.JobList,
            query=models.Page,
        ),
        _get("/v1/jobs/{job_id}", "job_get", "Show a job and its deliveries", jobs.get_job, answers.JobDetail),
    ),
    *_tagged(
        "webhooks",
        _write(
            "POST",
            "/v1/webhooks",
            "webhook_create",
            "Store an account webhook",
            webhooks.create,
            body=models.WebhookPost,
            answer=answers.AccountWebhookDetail,
            statuses=(201,),
        ),
        _get(
            "/v1/webhooks",
            "webhook_list",
            "List webhooks",
            webhooks.list_,
            answers.WebhookList,
            query=models.WebhookPage,
        ),
        _get(WEBHOOK, "webhook_get", "Show a webhook", webhooks.get, answers.AccountWebhookDetail, query=models.Reveal),
        _write(
            "PATCH",
            WEBHOOK,
            "webhook_patch",
            "Change an account webhook (JSON merge patch)",
            webhooks.patch,
            body=models.WebhookPatch,
            answer=answers.AccountWebhookDetail,
        ),
        _remove(WEBHOOK, "webhook_delete", "Retire an account webhook", webhooks.delete),
        _test(f"{WEBHOOK}/test", "webhook_test", webhooks.test),
        _change(
            f"{WEBHOOK}/rotate-secret",
            "webhook_rotate_secret",
            "Make a new secret",
            webhooks.rotate,
            models.RotateSecret,
            answer=answers.SecretAnswer,
        ),
        _write(
            "POST",
            f"{WEBHOOK}/revoke-previous-secret",
            "webhook_revoke_previous_secret",
            "End the overlap of a rotation",
            webhooks.revoke,
            statuses=(204,),
        ),
        _write(
            "POST",
            f"{WEBHOOK}/enable",
            "webhook_enable",
            "Release deliveries, one trial first",
            webhooks.enable,
            answer=answers.AccountWebhookDetail,
        ),
        _write(
            "POST",
            f"{WEBHOOK}/pause",
            "webhook_pause",
            "Hold deliveries",
            webhooks.pause,
            answer=answers.AccountWebhookDetail,
        ),
        _get(f"{WEBHOOK}/stats", "webhook_stats", "How a webhook does", stats.get, answers.Stats),
    ),
    *_tagged(
        "replays",
        _write(
            "POST",
            f"{WEBHOOK}/replay",
            "replay_start",
            "Send past messages again",
            replays.start,
            body=models.ReplayPost,
            answer=answers.ReplayStart,
            statuses=(202,),
        ),
        _get("/v1/replays/{replay_id}", "replay_get", "Show a replay", replays.get, answers.Replay),
        _remove("/v1/replays/{replay_id}", "replay_cancel", "Stop a replay", replays.cancel),
    ),
    *_tagged(
        "deliveries",
        _get("/v1/messages/{message_id}", "message_get", "Show a message", messages.get, answers.Message),
        _remove("/v1/messages/{message_id}/body", "message_expunge", "Destroy the body of a message", messages.expunge),
        _get(
            "/v1/deliveries",
            "delivery_list",
            "List deliveries",
            deliveries.list_,
            answers.DeliveryList,
            query=models.DeliveryPage,
        ),
        _get(DELIVERY, "delivery_get", "Show a delivery and its attempts", deliveries.get, answers.DeliveryDetail),
        _change(
            f"{DELIVERY}/redeliver",
            "delivery_redeliver",
            "One extra attempt now",
            deliveries.redeliver,
            models.Redeliver,
            answer=answers.Delivery,
            statuses=(202,),
        ),
        _write(
            "POST",
            f"{DELIVERY}/cancel",
            "delivery_cancel",
            "Cancel a waiting delivery",
            deliveries.cancel,
            answer=answers.Delivery,
        ),
    ),
    *_tagged(
        "events",
        Operation(
            "POST",
            "/v1/events",
            "events_post",
            "Take job events",
            events.post,
            Role.INGEST,
            Kind.EVENTS,
            body_limit=EVENTS_LIMIT,
            answer=answers.EventResults,
            statuses=(202,),
        ),
    ),
    *_tagged(
        "operator",
        _for_operators(
            _write(
                "POST",
                "/v1/keys",
                "key_create",
                "Make an API key",
                keys.create,
                body=models.KeyPost,
                answer=answers.NewKey,
                statuses=(201,),
            )
        ),
        _for_operators(
            _get("/v1/keys", "key_list", "List API keys", keys.list_, answers.KeyList, query=models.KeyPage)
        ),
        _for_operators(_remove("/v1/keys/{key_id}", "key_revoke", "Revoke an API key", keys.revoke)),
        _for_operators(
            _get("/v1/audit", "audit_list", "List writes", audit.list_, answers.AuditList, query=models.Page)
        ),
        _for_operators(
            _get(
                "/v1/operator/top",
                "operator_top",
                "Webhooks that stand out",
                operator.top,
                answers.TopList,
                query=models.Top,
            )
        ),
        _for_operators(
            _get(PAUSES, "operator_pause_list", "List operator pauses", operator.list_pauses, answers.PauseList)
        ),
        _for_operators(
            _write(
                "POST",
                PAUSES,
                "operator_pause_create",
                "Stop claims",
                operator.create_pause,
                body=models.PausePost,
                answer=answers.Pause,
                statuses=(201, 200),
            )
        ),
        _for_operators(
            _remove(
                PAUSES,
                "operator_pause_delete",
                "Let claims go on",
                operator.delete_pause,
                query=models.PauseDelete,
                body=models.PauseDelete,
                body_required=False,
            )
        ),
    ),
    *_tagged(
        "signing",
        _get(
            "/v1/signing-keys",
            "signing_keys_get",
            "Default secret and public keys",
            signing_keys.get,
            answers.SigningKeys,
            query=models.Page,
        ),
        _change(
            "/v1/signing-keys/rotate",
            "signing_keys_rotate",
            "Make a new default secret",
            signing_keys.rotate,
            models.RotateSecret,
            answer=answers.SecretAnswer,
        ),
    ),
    *_tagged(
        "documents",
        Operation(
            "GET",
            "/healthz",
            "healthz",
            "Whether the process answers",
            documents.healthz,
            kind=Kind.OPEN,
            answer=answers.Health,
        ),
        Operation("GET", "/openapi.json", "openapi", "This document", documents.openapi, kind=Kind.OPEN),
        Operation("GET", "/docs", "docs", "This document, to browse", documents.page, kind=Kind.OPEN),
        Operation("GET", "/docs/{asset}", "docs_asset", "What the page needs", documents.asset, kind=Kind.OPEN),
    ),
)
