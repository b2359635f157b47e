-- Delete messages of a tenant and their bodies, at most $2 at a time; what a queued delivery still sends is left.
WITH page AS (
    SELECT m.message_id, m.body_at
    FROM messages AS m
    WHERE m.tenant_id = $1 AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.message_id = m.message_id)
    ORDER BY m.created_at, m.message_id
    LIMIT $2::integer
    FOR UPDATE OF m SKIP LOCKED
),
bodies AS (
    DELETE FROM message_bodies AS b
    USING page AS p
    WHERE b.message_id = p.message_id AND b.body_at = p.body_at
    RETURNING b.message_id
),
gone AS (
    DELETE FROM messages AS m USING page AS p WHERE m.message_id = p.message_id RETURNING m.message_id
)
SELECT (SELECT count(*) FROM gone)::integer AS messages, (SELECT count(*) FROM bodies)::integer AS message_bodies
