-- Forget those of some locked messages that nothing needs: not the newest finish of a batch, not about the present run of a
-- job, neither queued nor in history.
WITH gone AS (
    DELETE FROM messages AS m
    WHERE
        m.message_id = ANY ($1::text[])
        AND (SELECT true FROM batches AS b WHERE b.batch_key = m.batch_key AND b.finish_message_id = m.message_id LIMIT 1) IS NULL
        AND (
            SELECT true FROM jobs AS j
            WHERE j.tenant_id = m.tenant_id AND j.job_id = m.job_id AND j.generation <= m.generation
        ) IS NULL
        AND (SELECT true FROM deliveries AS d WHERE d.message_id = m.message_id LIMIT 1) IS NULL
        AND (SELECT true FROM deliveries_done AS d WHERE d.message_id = m.message_id LIMIT 1) IS NULL
    RETURNING m.message_id, m.body_at
),
bodies AS (
    DELETE FROM message_bodies AS b
    WHERE b.message_id = ANY (ARRAY(SELECT message_id FROM gone)) AND b.body_at = ANY (ARRAY(SELECT body_at FROM gone))
)
SELECT count(*)::integer AS messages FROM gone
