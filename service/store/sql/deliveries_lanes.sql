-- At most $2 lanes after $1 with something that waits for its instant, found by a loose index scan: those with something
-- due, each with the instant of its oldest. "ends_at" is where to go on; null when the scan has come to the last lane.
WITH RECURSIVE visited (lane, due_at, position) AS (
    (
        SELECT d.lane, d.due_at, 1
        FROM deliveries AS d
        WHERE d.lease_token IS NULL AND d.due_at IS NOT NULL AND d.lane > $1::bigint
        ORDER BY d.lane, d.due_at
        LIMIT 1
    )
    UNION ALL
    SELECT following.lane, following.due_at, v.position + 1
    FROM visited AS v
    CROSS JOIN LATERAL (
        SELECT d.lane, d.due_at
        FROM deliveries AS d
        WHERE d.lease_token IS NULL AND d.due_at IS NOT NULL AND d.lane > v.lane
        ORDER BY d.lane, d.due_at
        LIMIT 1
    ) AS following
    WHERE v.position < $2::integer
)
SELECT
    extract(EPOCH FROM now())::double precision AS at,
    coalesce(array_agg(v.lane) FILTER (WHERE v.due_at <= now()), '{}') AS lanes,
    coalesce(array_agg(extract(EPOCH FROM v.due_at)::double precision) FILTER (WHERE v.due_at <= now()), '{}') AS oldest,
    max(v.lane) FILTER (WHERE v.position = $2::integer) AS ends_at
FROM visited AS v
