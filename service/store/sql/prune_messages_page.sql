-- The next $5 messages of a tenant ($1) from before $2, after ($3, $4), and whether each is spent (``prune_messages``).
SELECT
    m.message_id, m.created_at,
    (SELECT b.finish_message_id FROM batches AS b WHERE b.batch_key = m.batch_key) IS DISTINCT FROM m.message_id
    AND coalesce(
        (SELECT j.generation FROM jobs AS j WHERE j.tenant_id = m.tenant_id AND j.job_id = m.job_id) > m.generation, true
    ) AS spent
FROM messages AS m
WHERE
    m.tenant_id = $1 AND m.created_at < $2::timestamptz AND m.created_at >= $3::timestamptz
    AND (m.created_at, m.message_id) > ($3, $4::text)
ORDER BY m.created_at, m.message_id
LIMIT $5::integer
