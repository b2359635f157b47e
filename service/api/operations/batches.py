"""Calls about batches, their webhooks and their jobs."""

from __future__ import annotations

from service.api import answers, batch_webhooks, jobs, models
from service.api.calls import Operation
from service.api.operations.building import change, get, of_webhook, remove, tagged, write

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
    *of_webhook(HOOK, "batch_webhook", batch_webhooks),
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
