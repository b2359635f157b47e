-- Webhooks by deliveries that are leased to a worker at this moment.
WITH top AS (
    SELECT webhook_key, count(*) AS value, false AS capped
    FROM deliveries
    WHERE lease_until IS NOT NULL
    GROUP BY webhook_key
    ORDER BY value DESC
    LIMIT $1
)
SELECT w.tenant_id, w.webhook_id, w.origin, w.state, t.value, t.capped, h.last_error
FROM top AS t
JOIN webhooks AS w USING (webhook_key)
LEFT JOIN webhook_health AS h USING (webhook_key)
ORDER BY t.value DESC, w.webhook_key
