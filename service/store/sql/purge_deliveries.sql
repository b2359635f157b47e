-- Delete queued deliveries of a tenant and their attempts, at most $2 at a time. Those under a lease are left: whoever
-- holds it records what came of them, or the lease runs out.
WITH page AS (
    SELECT delivery_id
    FROM deliveries
    WHERE tenant_id = $1 AND (lease_token IS NULL OR lease_until < now())
    ORDER BY delivery_id
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.delivery_id = p.delivery_id RETURNING a.delivery_id
),
gone AS (
    DELETE FROM deliveries AS d USING page AS p WHERE d.delivery_id = p.delivery_id RETURNING d.delivery_id
)
SELECT (SELECT count(*) FROM gone)::integer AS deliveries, (SELECT count(*) FROM tried)::integer AS attempts
