-- Lock the health of these webhooks, and their settings against a change beside us.
SELECT
    w.webhook_key, w.webhook_id, w.tenant_id, w.revision, w.state, w.state_at, w.origin, h.health, h.held_until
FROM webhooks AS w
JOIN webhook_health AS h ON h.webhook_key = w.webhook_key
WHERE w.webhook_key = ANY ($1::bigint[])
ORDER BY w.webhook_key
FOR NO KEY UPDATE OF w, h
