-- The next $3 jobs of a tenant after a job id, and which of them have a run that ended in the span and whose message, if
-- there is one, has no delivery for the webhook.
SELECT
    j.job_id,
    j.phase >= 3 AND j.completed_at >= $4 AND j.completed_at < $5
    AND NOT EXISTS (
        SELECT FROM messages AS m
        JOIN deliveries AS d ON d.message_id = m.message_id AND d.webhook_key = $6
        WHERE m.tenant_id = j.tenant_id AND m.job_id = j.job_id AND m.generation = j.generation
    )
    AND NOT EXISTS (
        SELECT FROM messages AS m
        JOIN deliveries_done AS d ON d.message_id = m.message_id AND d.webhook_key = $6
        WHERE m.tenant_id = j.tenant_id AND m.job_id = j.job_id AND m.generation = j.generation
    ) AS untold
FROM (SELECT * FROM jobs WHERE tenant_id = $1 AND job_id > $2 ORDER BY job_id LIMIT $3) AS j
ORDER BY j.job_id
