-- Incarnations of a tenant's batches, newest first.
SELECT b.*, d.generation AS delivered_generation
FROM batches AS b
LEFT JOIN batch_delivered AS d USING (batch_key)
WHERE b.tenant_id = $1 AND b.batch_key < $2
ORDER BY b.batch_key DESC
LIMIT $3
