"""Calls about batches, their webhooks and their jobs."""

from __future__ import annotations

from service.api import answers, batch_webhooks, jobs, models
from service.api.calls import Operation
from service.api.operations.building import change, get, remove, tagged, test, write

BATCH = "/v1/batches/{batch_name}"
HOOK = f"{BATCH}/webhook"

CALLS: tuple[Operation, ...] = tagged(
    "batches",
    write(
        "PUT",
        HOOK,
        "batch_webhook_put",
        "Register the webhook of a batch",
        batch_webhooks.put,
        body=models.BatchWebhookPut,
        answer=answers.BatchWebhookRegistered,
        statuses=(201, 200),
    ),
    get(
        HOOK,
        "batch_webhook_get",
        "Show the webhook of a batch",
        batch_webhooks.get,
        answers.BatchWebhook,
        query=models.Reveal,
    ),
    remove(HOOK, "batch_webhook_delete", "Retire the webhook of a batch", batch_webhooks.delete),
    test(f"{HOOK}/test", "batch_webhook_test", batch_webhooks.test),
    change(
        f"{HOOK}/rotate-secret",
        "batch_webhook_rotate_secret",
        "Make a new secret",
        batch_webhooks.rotate,
        models.RotateSecret,
        answer=answers.SecretAnswer,
    ),
    write(
        "POST",
        f"{HOOK}/revoke-previous-secret",
        "batch_webhook_revoke_previous_secret",
        "End the overlap of a rotation",
        batch_webhooks.revoke,
        statuses=(204,),
    ),
    write(
        "POST",
        f"{HOOK}/enable",
        "batch_webhook_enable",
        "Release deliveries, one trial first",
        batch_webhooks.enable,
        answer=answers.AccountWebhookDetail,
    ),
    write(
        "POST",
        f"{HOOK}/pause",
        "batch_webhook_pause",
        "Hold deliveries",
        batch_webhooks.pause,
        answer=answers.AccountWebhookDetail,
    ),
    change(
        f"{BATCH}/renotify",
        "batch_renotify",
        "Send the newest finish again",
        batch_webhooks.renotify,
        models.Renotify,
        answer=answers.Renotified,
        statuses=(202,),
    ),
    get("/v1/batches", "batch_list", "List batches", jobs.list_batches, answers.BatchList, query=models.Page),
    get(BATCH, "batch_get", "Show a batch", jobs.get_batch, answers.BatchDetail),
    get(
        f"{BATCH}/jobs", "batch_jobs", "List the members of a batch", jobs.list_jobs, answers.JobList, query=models.Page
    ),
    get("/v1/jobs/{job_id}", "job_get", "Show a job and its deliveries", jobs.get_job, answers.JobDetail),
)
