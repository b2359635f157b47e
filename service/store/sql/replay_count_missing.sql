-- How many messages have a body still and no delivery for a webhook; counting stops at $6.
SELECT count(*)
FROM (
    SELECT FROM messages AS m
    WHERE
        m.tenant_id = $1 AND m.created_at >= $4 AND m.created_at < $5 AND m.scope < 2 AND NOT m.renotified
        AND m.expunged_at IS NULL AND ($3::bigint IS NULL OR m.batch_key = $3)
        AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.message_id = m.message_id AND d.webhook_key = $2)
        AND NOT EXISTS (SELECT FROM deliveries_done AS d WHERE d.message_id = m.message_id AND d.webhook_key = $2)
        AND (SELECT true FROM message_bodies AS o WHERE o.message_id = m.message_id AND o.body_at = m.body_at LIMIT 1)
    LIMIT $6
) AS x
