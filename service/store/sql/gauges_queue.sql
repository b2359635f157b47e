-- The queue at a glance. Counts stop at $1 rows; beyond, the statistics of the table or index are the estimate. The
-- oldest due delivery is looked for lane by lane, past webhooks that wait for a reason of their own.
WITH RECURSIVE lanes (lane, due_at, webhook_key, position) AS (
    (
        SELECT d.lane, d.due_at, d.webhook_key, 1
        FROM deliveries AS d
        WHERE d.lease_token IS NULL AND d.due_at IS NOT NULL
        ORDER BY d.lane, d.due_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.lane, following.due_at, following.webhook_key, l.position + 1
    FROM lanes AS l
    CROSS JOIN LATERAL (
        SELECT d.lane, d.due_at, d.webhook_key
        FROM deliveries AS d
        WHERE d.lease_token IS NULL AND d.due_at IS NOT NULL AND d.lane > l.lane
        ORDER BY d.lane, d.due_at
        LIMIT 1
    ) AS following
    WHERE l.position < $1
),
pending AS (
    SELECT count(*) AS counted FROM (SELECT FROM deliveries WHERE state < 2 LIMIT $1) AS found
),
held AS (
    SELECT count(*) AS counted FROM (SELECT FROM deliveries WHERE state = 2 LIMIT $1) AS found
),
sizes AS (
    SELECT
        max(reltuples) FILTER (WHERE relname = 'deliveries')::bigint AS deliveries,
        max(reltuples) FILTER (WHERE relname = 'deliveries_held')::bigint AS held
    FROM pg_class
    WHERE oid IN ('deliveries'::regclass, 'deliveries_held'::regclass)
)
SELECT
    CASE WHEN p.counted < $1 THEN p.counted ELSE greatest(p.counted, s.deliveries - s.held) END AS deliveries_pending,
    CASE WHEN h.counted < $1 THEN h.counted ELSE greatest(h.counted, s.held) END AS deliveries_held,
    coalesce((
        SELECT extract(EPOCH FROM now() - min(l.due_at))::double precision
        FROM lanes AS l
        JOIN webhooks AS w USING (webhook_key)
        LEFT JOIN webhook_health AS h USING (webhook_key)
        WHERE
            l.due_at <= now() AND w.state = 0 AND coalesce(h.breaker, 0) = 0 AND coalesce(h.held_until, now()) <= now()
            AND NOT EXISTS (
                SELECT FROM operator_pauses AS p WHERE p.ended_at IS NULL AND names_webhook(p, w.tenant_id, w.origin)
            )
    ), 0) AS oldest_due_seconds,
    (
        SELECT count(*) FROM webhook_health AS h JOIN webhooks AS w USING (webhook_key)
        WHERE h.breaker <> 0 AND w.deleted_at IS NULL
    ) AS breakers_open,
    coalesce((
        SELECT extract(EPOCH FROM max(now() - xact_start))::double precision
        FROM pg_stat_activity
        WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND datname = current_database()
    ), 0) AS oldest_transaction_seconds
FROM pending AS p, held AS h, sizes AS s
