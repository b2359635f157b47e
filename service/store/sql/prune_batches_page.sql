-- The next $2 batches after a key, oldest first: since when each is known tells where the walk may stop, and whether it has
-- been quiet since $3 which ones are worth a lock.
SELECT b.batch_key, b.first_seen_at < $3::timestamptz AS old, b.updated_at < $3::timestamptz AS quiet
FROM batches AS b
WHERE b.batch_key > $1::bigint
ORDER BY b.batch_key
LIMIT $2::integer
