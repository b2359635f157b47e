"""Calls for operators: keys, the audit log, what hurts, pauses."""

from __future__ import annotations

from service.api import answers, audit, keys, models, operator
from service.api.calls import Operation
from service.api.operations.building import for_operators, get, remove, tagged, write

PAUSES = "/v1/operator/pauses"

CALLS: tuple[Operation, ...] = tagged(
    "operator",
    for_operators(
        write(
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
    for_operators(get("/v1/keys", "key_list", "List API keys", keys.list_, answers.KeyList, query=models.KeyPage)),
    for_operators(remove("/v1/keys/{key_id}", "key_revoke", "Revoke an API key", keys.revoke)),
    for_operators(get("/v1/audit", "audit_list", "List writes", audit.list_, answers.AuditList, query=models.Page)),
    for_operators(
        get(
            "/v1/operator/top",
            "operator_top",
            "Webhooks that stand out",
            operator.top,
            answers.TopList,
            query=models.Top,
        )
    ),
    for_operators(get(PAUSES, "operator_pause_list", "List operator pauses", operator.list_pauses, answers.PauseList)),
    for_operators(
        write(
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
    for_operators(
        remove(
            PAUSES,
            "operator_pause_delete",
            "Let claims go on",
            operator.delete_pause,
            query=models.PauseDelete,
            body=models.PauseDelete,
            body_required=False,
        )
    ),
)
