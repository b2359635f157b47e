-- One message, locked until the transaction ends: its body stays where it is.
SELECT
    message_id, tenant_id, type, scope, batch_key, job_id, generation, source, finished_at, body_at, expunged_at
FROM messages
WHERE message_id = $1 AND tenant_id = $2
FOR NO KEY UPDATE
