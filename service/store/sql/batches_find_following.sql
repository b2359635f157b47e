-- The newest live incarnation of a name after one that ended.
SELECT batch_key
FROM batches
WHERE tenant_id = $1 AND name = $2 AND seq > $3 AND ended_by IS NULL
ORDER BY seq DESC
LIMIT 1
