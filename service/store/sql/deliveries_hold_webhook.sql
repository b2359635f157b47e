-- Hold what waits for a stopped webhook, at most $3 rows at a time; what is on the wire is flagged, unless it is to be
-- superseded or canceled. Returns the number of deliveries that are held now.
WITH flagged AS (
    UPDATE deliveries AS d
    SET flag = 3, flag_reason = $2::text
    WHERE
        d.webhook_key = $1::bigint AND d.lease_token IS NOT NULL AND d.extra <> 1
        AND (d.flag IN (0, 4) OR (d.flag = 3 AND $2::text = 'paused'))
),
chosen AS (
    SELECT d.delivery_id
    FROM deliveries AS d
    WHERE d.webhook_key = $1::bigint AND d.lease_token IS NULL AND d.state < 2 AND d.extra <> 1
    ORDER BY d.delivery_id
    LIMIT $3::integer
    FOR NO KEY UPDATE OF d
),
held AS (
    UPDATE deliveries AS d
    SET state = 2, reason = $2::text, held_at = now(), due_at = NULL
    FROM chosen AS c
    WHERE d.delivery_id = c.delivery_id
    RETURNING d.delivery_id
)
SELECT count(*)::integer FROM held
