-- Messages by id, and whether each has a body still: it may have been destroyed, or have aged out.
SELECT
    m.message_id, m.body_at, m.type, m.scope, m.batch_key, m.job_id, m.generation,
    (SELECT true FROM message_bodies AS b WHERE b.message_id = m.message_id AND b.body_at = m.body_at LIMIT 1) AS has_body
FROM messages AS m
WHERE m.message_id = ANY ($1::text[])
