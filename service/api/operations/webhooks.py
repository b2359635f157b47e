"""Calls about account webhooks, and replays to them."""

from __future__ import annotations

from service.api import answers, models, replays, stats, webhooks
from service.api.calls import Operation
from service.api.operations.building import get, of_webhook, remove, tagged, write

WEBHOOK = "/v1/webhooks/{webhook_id}"

CALLS: tuple[Operation, ...] = (
    *tagged(
        "webhooks",
        write(
            "POST",
            "/v1/webhooks",
            "webhook_create",
            "Store an account webhook",
            webhooks.create,
            body=models.WebhookPost,
            answer=answers.AccountWebhookDetail,
            statuses=(201,),
        ),
        get(
            "/v1/webhooks",
            "webhook_list",
            "List webhooks",
            webhooks.list_,
            answers.WebhookList,
            query=models.WebhookPage,
        ),
        get(WEBHOOK, "webhook_get", "Show a webhook", webhooks.get, answers.AccountWebhookDetail, query=models.Reveal),
        write(
            "PATCH",
            WEBHOOK,
            "webhook_patch",
            "Change an account webhook (JSON merge patch)",
            webhooks.patch,
            body=models.WebhookPatch,
            answer=answers.AccountWebhookDetail,
        ),
        remove(WEBHOOK, "webhook_delete", "Retire an account webhook", webhooks.delete),
        *of_webhook(WEBHOOK, "webhook", webhooks),
        get(f"{WEBHOOK}/stats", "webhook_stats", "How a webhook does", stats.get, answers.Stats),
    ),
    *tagged(
        "replays",
        write(
            "POST",
            f"{WEBHOOK}/replay",
            "replay_start",
            "Send past messages again",
            replays.start,
            body=models.ReplayPost,
            answer=answers.ReplayStart,
            statuses=(202,),
        ),
        get("/v1/replays/{replay_id}", "replay_get", "Show a replay", replays.get, answers.Replay),
        remove("/v1/replays/{replay_id}", "replay_cancel", "Stop a replay", replays.cancel),
    ),
)
