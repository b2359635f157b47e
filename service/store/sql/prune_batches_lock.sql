-- Lock those of some batches that have been quiet since $2; one that somebody holds is left for the next look. What
-- concerns such a batch waits for the end of the transaction, and then finds no batch.
SELECT b.batch_key
FROM batches AS b
WHERE b.batch_key = ANY ($1::bigint[]) AND b.updated_at < $2::timestamptz
ORDER BY b.batch_key
FOR UPDATE SKIP LOCKED
