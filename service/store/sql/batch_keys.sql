-- The incarnations of a name, newest first.
SELECT batch_key FROM batches WHERE tenant_id = $1 AND name = $2 ORDER BY seq DESC LIMIT 100
