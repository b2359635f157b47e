-- Lock the finishes of locked batches, at most $2; a batch of which one is missing here stays until the next pass.
SELECT m.message_id
FROM messages AS m
WHERE m.batch_key = ANY ($1::bigint[]) AND m.scope = 0
LIMIT $2::integer
FOR UPDATE SKIP LOCKED
