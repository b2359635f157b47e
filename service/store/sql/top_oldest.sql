-- Webhooks by how long their oldest due delivery has waited, in seconds: the first thousand due deliveries.
WITH top AS (
    SELECT d.webhook_key, extract(EPOCH FROM now() - min(d.due_at)) AS value, false AS capped
    FROM (
        SELECT webhook_key, due_at FROM deliveries
        WHERE lease_until IS NULL AND due_at <= now()
        ORDER BY due_at
        LIMIT 1000
    ) AS d
    GROUP BY d.webhook_key
    ORDER BY value DESC
    LIMIT $1
)
SELECT w.tenant_id, w.webhook_id, w.origin, w.state, t.value, t.capped, h.last_error
FROM top AS t
JOIN webhooks AS w USING (webhook_key)
LEFT JOIN webhook_health AS h USING (webhook_key)
ORDER BY t.value DESC, w.webhook_key
