-- Move bodies that are still needed out of a period that is about to be dropped, at most $3 at a time: the newest finish
-- of a live batch, and what an unfinished delivery sends. Returns the ids that were moved.
WITH needed AS (
    SELECT b.message_id, b.body_at, b.body, b.trace
    FROM message_bodies AS b
    WHERE
        b.body_at >= $1::timestamptz AND b.body_at < $2::timestamptz
        AND (
            EXISTS (SELECT FROM deliveries AS d WHERE d.message_id = b.message_id)
            OR EXISTS (
                SELECT FROM messages AS m
                JOIN batches AS a ON a.batch_key = m.batch_key
                WHERE m.message_id = b.message_id AND a.finish_message_id = m.message_id AND a.ended_at IS NULL
            )
        )
    LIMIT $3::integer
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
RETURNING b.message_id
