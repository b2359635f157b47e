-- Batches that changed since they were last recounted, and have been quiet for half a minute.
SELECT batch_key
FROM batches
WHERE updated_at > reconciled_at AND updated_at < now() - interval '30 seconds'
ORDER BY updated_at
LIMIT $1
