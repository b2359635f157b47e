-- Webhooks by waiting deliveries: a loose index scan over webhooks that have any. About 10,000 are counted in all, shared
-- out evenly, but 25 of each; what is above (capped) is what the statistics of the table say, so that a huge queue costs
-- as little to look at as a small one.
WITH RECURSIVE keys (webhook_key) AS (
    (SELECT webhook_key FROM deliveries ORDER BY webhook_key LIMIT 1)
    UNION ALL
    SELECT (SELECT d.webhook_key FROM deliveries AS d WHERE d.webhook_key > k.webhook_key ORDER BY d.webhook_key LIMIT 1)
    FROM keys AS k
    WHERE k.webhook_key IS NOT NULL
),
share AS (
    SELECT greatest(25, 10000 / greatest(1, count(webhook_key))) AS most FROM keys
),
counted AS (
    SELECT k.webhook_key, c.deliveries, c.deliveries >= s.most AS capped
    FROM keys AS k
    CROSS JOIN share AS s
    CROSS JOIN LATERAL (
        SELECT count(*) AS deliveries
        FROM (SELECT FROM deliveries AS d WHERE d.webhook_key = k.webhook_key LIMIT s.most) AS waiting
    ) AS c
    WHERE k.webhook_key IS NOT NULL
),
estimated AS (
    SELECT v.webhook_key, (v.share * t.reltuples)::bigint AS deliveries
    FROM pg_stats AS s
    JOIN pg_class AS t ON t.oid = 'deliveries'::regclass
    CROSS JOIN LATERAL unnest(s.most_common_vals::text::bigint[], s.most_common_freqs) AS v (webhook_key, share)
    WHERE s.schemaname = t.relnamespace::regnamespace::text AND s.tablename = 'deliveries' AND s.attname = 'webhook_key'
),
top AS (
    SELECT
        c.webhook_key,
        CASE WHEN c.capped THEN greatest(c.deliveries, e.deliveries) ELSE c.deliveries END AS value,
        c.capped
    FROM counted AS c
    LEFT JOIN estimated AS e USING (webhook_key)
    ORDER BY value DESC
    LIMIT $1
)
SELECT w.tenant_id, w.webhook_id, w.origin, w.state, t.value, t.capped, h.last_error
FROM top AS t
JOIN webhooks AS w USING (webhook_key)
LEFT JOIN webhook_health AS h USING (webhook_key)
ORDER BY t.value DESC, w.webhook_key
