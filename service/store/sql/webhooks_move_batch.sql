-- Hand a registration to another incarnation of its batch's name, settle window included.
WITH moved AS (
    UPDATE webhooks
    SET batch_key = $2, changed_at = now(), revision = revision + 1
    WHERE webhook_key = $1
    RETURNING settle_seconds
)
UPDATE batches AS b
SET settle_seconds = m.settle_seconds
FROM moved AS m
WHERE b.batch_key = $2
