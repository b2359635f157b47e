-- How many runs ended in a span without a message; counting stops at $4.
SELECT count(*)
FROM (
    SELECT FROM jobs AS j
    WHERE
        j.tenant_id = $1 AND j.phase >= 3 AND j.completed_at >= $2 AND j.completed_at < $3
        AND NOT EXISTS (
            SELECT FROM messages AS m
            WHERE m.tenant_id = j.tenant_id AND m.job_id = j.job_id AND m.generation = j.generation
        )
    LIMIT $4
) AS x
