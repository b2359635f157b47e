-- How many finished deliveries a replay would send; counting stops at $6.
SELECT count(*)
FROM (
    SELECT FROM deliveries_done
    WHERE
        webhook_key = $1 AND state = ANY ($2::smallint[]) AND ($3::text IS NULL OR reason = $3)
        AND created_at >= $4 AND created_at < $5 AND extra <> 1
    LIMIT $6
) AS d
