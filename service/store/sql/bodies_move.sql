-- Move the bodies of locked messages ($1) out of a period that is about to be dropped, with all that points to them.
WITH needed AS (
    SELECT b.message_id, b.body_at, b.body, b.trace
    FROM message_bodies AS b
    WHERE b.message_id = ANY ($1::text[]) AND b.body_at >= $2::timestamptz AND b.body_at < $3::timestamptz
),
stored AS (
    INSERT INTO message_bodies (message_id, body_at, body, trace)
    SELECT n.message_id, now(), n.body, n.trace FROM needed AS n
),
pointed AS (
    UPDATE messages AS m
    SET body_at = now()
    FROM needed AS n
    WHERE m.message_id = n.message_id
),
queued AS (
    UPDATE deliveries AS d
    SET body_at = now()
    FROM needed AS n
    WHERE d.message_id = n.message_id
)
DELETE FROM message_bodies AS b
USING needed AS n
WHERE b.message_id = n.message_id AND b.body_at = n.body_at
