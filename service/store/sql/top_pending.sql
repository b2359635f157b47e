-- Webhooks by waiting deliveries. Of a queue of more than 60 blocks about so many are looked at, chosen anew each time:
-- they tell which webhooks have the most, also when a queue has just grown. Those are counted, about 3,000 in all, shared
-- out evenly; what is above (capped) is an estimate. So a huge queue, whose blocks have to be read first, costs about as
-- little to look at as a small one.
WITH size AS (
    SELECT greatest(1.0, pg_relation_size('deliveries') / current_setting('block_size')::numeric / 60) AS times
),
sampled AS (
    SELECT webhook_key, count(*) AS deliveries
    FROM deliveries TABLESAMPLE system (100.0 / (SELECT times FROM size))
    GROUP BY webhook_key
    ORDER BY deliveries DESC
    LIMIT $1::integer + 10
),
estimated AS (
    SELECT s.webhook_key, (s.deliveries * size.times)::bigint AS deliveries, size.times > 1 AS rough
    FROM sampled AS s
    CROSS JOIN size
),
counted AS (
    SELECT
        e.webhook_key, greatest(c.deliveries, e.deliveries) AS at_least, c.deliveries, c.deliveries >= m.most AS capped, e.rough
    FROM estimated AS e
    CROSS JOIN (VALUES (3000 / ($1::integer + 10))) AS m (most)
    CROSS JOIN LATERAL (
        SELECT count(*) AS deliveries
        FROM (SELECT FROM deliveries AS d WHERE d.webhook_key = e.webhook_key AND e.rough LIMIT m.most) AS waiting
    ) AS c
),
top AS (
    SELECT
        webhook_key,
        CASE WHEN rough AND NOT capped THEN deliveries ELSE at_least END AS value,
        capped
    FROM counted
    ORDER BY value DESC
    LIMIT $1::integer
)
SELECT w.tenant_id, w.webhook_id, w.origin, w.state, t.value, t.capped, h.last_error
FROM top AS t
JOIN webhooks AS w USING (webhook_key)
LEFT JOIN webhook_health AS h USING (webhook_key)
ORDER BY t.value DESC, w.webhook_key
