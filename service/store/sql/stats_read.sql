-- Roll-ups of a webhook since $2, summed per outcome.
SELECT
    r.outcome, sum(r.attempts)::integer AS attempts, sum(r.duration_ms)::bigint AS duration_ms,
    ARRAY(
        SELECT coalesce(sum(o.histogram[i]), 0)::integer
        FROM generate_series(1, $3::integer) AS i
        LEFT JOIN attempt_rollups AS o
            ON o.webhook_key = $1 AND o.bucket_at >= $2 AND o.outcome = r.outcome
        GROUP BY i
        ORDER BY i
    ) AS histogram
FROM attempt_rollups AS r
WHERE r.webhook_key = $1 AND r.bucket_at >= $2
GROUP BY r.outcome
