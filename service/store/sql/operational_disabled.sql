-- Webhooks that were disabled since.
SELECT tenant_id, webhook_id, origin, state_reason, state_at, untold
FROM webhooks
WHERE changed_at > $1 AND state_at > $1 AND state = 2 AND deleted_at IS NULL
ORDER BY state_at
