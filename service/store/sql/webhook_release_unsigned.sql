-- Deliveries that waited for the tenant's first default secret are due.
UPDATE deliveries AS d
SET
    state = 0, reason = NULL, held_at = NULL, due_at = CASE WHEN d.waits_for IS NULL THEN now() END,
    first_due_at = now()
FROM webhooks AS w
WHERE
    w.tenant_id = $1 AND w.kind = 2 AND w.deleted_at IS NULL AND d.webhook_key = w.webhook_key AND d.state = 2
    AND d.lease_token IS NULL AND d.reason = 'no_signing_key'
