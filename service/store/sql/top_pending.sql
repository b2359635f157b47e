-- Webhooks by waiting deliveries: a loose index scan over webhooks that have any, each counted up to 10,000.
WITH RECURSIVE keys (webhook_key) AS (
    (SELECT webhook_key FROM deliveries ORDER BY webhook_key LIMIT 1)
    UNION ALL
    SELECT (SELECT d.webhook_key FROM deliveries AS d WHERE d.webhook_key > k.webhook_key ORDER BY d.webhook_key LIMIT 1)
    FROM keys AS k
    WHERE k.webhook_key IS NOT NULL
),
top AS (
    SELECT k.webhook_key, c.value, c.value >= 10000 AS capped
    FROM keys AS k
    CROSS JOIN LATERAL (
        SELECT count(*) AS value
        FROM (SELECT FROM deliveries AS d WHERE d.webhook_key = k.webhook_key LIMIT 10000) AS waiting
    ) AS c
    WHERE k.webhook_key IS NOT NULL
    ORDER BY c.value DESC
    LIMIT $1
)
SELECT w.tenant_id, w.webhook_id, w.origin, w.state, t.value, t.capped, h.last_error
FROM top AS t
JOIN webhooks AS w USING (webhook_key)
LEFT JOIN webhook_health AS h USING (webhook_key)
ORDER BY t.value DESC, w.webhook_key
