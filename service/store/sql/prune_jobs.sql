-- Forget locked jobs ($1, $2) with their messages, of which $3 are locked too. A job stays while a message of it came
-- since $4, is queued or is in history: the two are forgotten at once, so that a later event finds both or neither.
WITH going AS (
    SELECT j.tenant_id, j.job_id
    FROM unnest($1::text[], $2::text[]) AS k (tenant_id, job_id)
    JOIN jobs AS j USING (tenant_id, job_id)
    WHERE
        (
            SELECT true FROM messages AS m
            WHERE
                m.tenant_id = j.tenant_id AND m.job_id = j.job_id
                AND (
                    m.created_at >= $4::timestamptz OR m.message_id <> ALL ($3::text[])
                    OR (SELECT true FROM deliveries AS d WHERE d.message_id = m.message_id LIMIT 1)
                    OR (SELECT true FROM deliveries_done AS d WHERE d.message_id = m.message_id LIMIT 1)
                )
            LIMIT 1
        ) IS NULL
),
told AS (
    DELETE FROM messages AS m
    USING going AS g
    WHERE m.message_id = ANY ($3::text[]) AND m.tenant_id = g.tenant_id AND m.job_id = g.job_id
    RETURNING m.message_id, m.body_at
),
bodies AS (
    DELETE FROM message_bodies AS b
    WHERE b.message_id = ANY (ARRAY(SELECT message_id FROM told)) AND b.body_at = ANY (ARRAY(SELECT body_at FROM told))
),
gone AS (
    DELETE FROM jobs AS j USING going AS g WHERE j.tenant_id = g.tenant_id AND j.job_id = g.job_id RETURNING j.job_id
)
SELECT (SELECT count(*) FROM gone)::integer AS jobs, (SELECT count(*) FROM told)::integer AS messages
