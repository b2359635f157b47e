-- Hand a registration to another incarnation of its batch's name, settle window included.
WITH moved AS (
    UPDATE webhooks
    SET batch_key = $2, changed_at = now(), revision = revision + 1
    WHERE webhook_key = $1
    RETURNING webhook_key, webhook_id, lane, state, settle_seconds, notify_if_done
)
UPDATE batches AS b
SET settle_seconds = m.settle_seconds
FROM moved AS m
WHERE b.batch_key = $2
RETURNING m.webhook_key, m.webhook_id, m.lane, m.state, m.notify_if_done
