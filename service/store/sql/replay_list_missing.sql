-- The next $7 messages of a tenant, and which of them are the newest of their live batch or job and have a body
-- still and no delivery for the webhook.
WITH page AS (
    SELECT *
    FROM messages AS m
    WHERE
        m.tenant_id = $1 AND m.created_at >= $4 AND m.created_at < $6
        AND (m.created_at, m.message_id) > ($4, $5)
        AND ($3::bigint IS NULL OR m.batch_key = $3)
    ORDER BY m.created_at, m.message_id
    LIMIT $7
)
SELECT
    m.message_id, m.created_at, m.body_at, m.type, m.scope, m.batch_key, m.job_id, m.generation, m.source,
    b.name AS batch_name,
    m.scope < 2 AND NOT m.renotified AND m.expunged_at IS NULL
    AND (m.scope <> 0 OR b.ended_by IS NULL)
    AND (m.scope <> 0 OR NOT EXISTS (
        SELECT FROM messages AS n WHERE n.batch_key = m.batch_key AND n.scope = 0 AND n.generation > m.generation
    ))
    AND (m.scope <> 1 OR NOT EXISTS (
        SELECT FROM messages AS n
        WHERE n.tenant_id = m.tenant_id AND n.job_id = m.job_id AND n.generation > m.generation
    ))
    AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.message_id = m.message_id AND d.webhook_key = $2)
    AND NOT EXISTS (SELECT FROM deliveries_done AS d WHERE d.message_id = m.message_id AND d.webhook_key = $2)
    AND (SELECT true FROM message_bodies AS o WHERE o.message_id = m.message_id AND o.body_at = m.body_at LIMIT 1)
    AS missing
FROM page AS m
LEFT JOIN batches AS b ON b.batch_key = m.batch_key
ORDER BY m.created_at, m.message_id
