-- The queue at a glance. Counts stop at $1 rows; beyond, the statistics of the table or index are the estimate.
WITH pending AS (
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
        SELECT extract(EPOCH FROM now() - d.due_at)::double precision
        FROM deliveries AS d
        WHERE d.lease_token IS NULL AND d.due_at <= now()
        ORDER BY d.due_at
        LIMIT 1
    ), 0) AS oldest_due_seconds,
    (SELECT count(*) FROM webhook_health WHERE breaker <> 0) AS breakers_open,
    coalesce((
        SELECT extract(EPOCH FROM max(now() - xact_start))::double precision
        FROM pg_stat_activity
        WHERE xact_start IS NOT NULL AND backend_type = 'client backend' AND datname = current_database()
    ), 0) AS oldest_transaction_seconds
FROM pending AS p, held AS h, sizes AS s
