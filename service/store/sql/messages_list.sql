SELECT message_id, body_at, type, scope, batch_key, job_id, generation, expunged_at
FROM messages
WHERE message_id = ANY ($1::text[])
