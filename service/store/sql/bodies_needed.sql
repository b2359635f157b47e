-- Messages whose body lies in a period that is about to be dropped and is still needed, at most $3: the newest finish of a
-- live batch, and what an unfinished delivery sends. Their rows are locked: what is put to use meanwhile waits, and what
-- was before has committed.
SELECT m.message_id
FROM message_bodies AS b
JOIN messages AS m USING (message_id)
WHERE
    b.body_at >= $1::timestamptz AND b.body_at < $2::timestamptz
    AND (
        EXISTS (SELECT FROM deliveries AS d WHERE d.message_id = b.message_id)
        OR EXISTS (
            SELECT FROM batches AS a
            WHERE a.batch_key = m.batch_key AND a.finish_message_id = m.message_id AND a.ended_at IS NULL
        )
    )
ORDER BY m.message_id
LIMIT $3::integer
FOR NO KEY UPDATE OF m
