SELECT
    message_id, type, scope, job_id, generation, source, finished_at, created_at, body_at, size, renotified, expunged_at
FROM messages
WHERE message_id = $1 AND tenant_id = $2
