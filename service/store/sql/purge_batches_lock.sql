-- Lock batches of a tenant, at most $2; one that ingest holds is left for the next look. What comes into a batch
-- afterwards waits for the end of the transaction, and then finds no batch.
SELECT batch_key
FROM batches
WHERE tenant_id = $1
ORDER BY batch_key
LIMIT $2::integer
FOR UPDATE SKIP LOCKED
