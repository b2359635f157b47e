-- Delete finished deliveries of a tenant and their attempts, at most $2 at a time.
WITH page AS (
    SELECT delivery_id, finished_at
    FROM deliveries_done
    WHERE tenant_id = $1
    ORDER BY delivery_id
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
tried AS (
    DELETE FROM attempts AS a USING page AS p WHERE a.delivery_id = p.delivery_id RETURNING a.delivery_id
),
gone AS (
    DELETE FROM deliveries_done AS d
    USING page AS p
    WHERE d.delivery_id = p.delivery_id AND d.finished_at = p.finished_at
    RETURNING d.delivery_id
)
SELECT (SELECT count(*) FROM gone)::integer AS deliveries_done, (SELECT count(*) FROM tried)::integer AS attempts
