-- Move a webhook to another state.
UPDATE webhooks
SET
    state = $2, state_reason = $3, state_detail = $4, state_at = $5, revision = revision + 1,
    changed_at = clock_timestamp()
WHERE webhook_key = $1
