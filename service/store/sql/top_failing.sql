-- Webhooks with an open breaker by how long they have had no success, in seconds.
SELECT
    w.tenant_id, w.webhook_id, w.origin, w.state,
    extract(EPOCH FROM now() - coalesce(h.last_success_at, w.created_at)) AS value, false AS capped, h.last_error
FROM webhook_health AS h
JOIN webhooks AS w USING (webhook_key)
WHERE h.breaker <> 0 AND w.deleted_at IS NULL
ORDER BY coalesce(h.last_success_at, w.created_at), w.webhook_key
LIMIT $1
