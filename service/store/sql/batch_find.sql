-- The newest incarnation of a name.
SELECT b.*, d.generation AS delivered_generation
FROM batches AS b
LEFT JOIN batch_delivered AS d USING (batch_key)
WHERE b.tenant_id = $1 AND b.name = $2
ORDER BY b.seq DESC
LIMIT 1
