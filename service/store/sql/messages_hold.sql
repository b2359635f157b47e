-- Where the bodies of known messages are. The rows are held until the transaction ends, so that nobody forgets a message
-- which is put to use again, or moves its body; one that was forgotten meanwhile is missing.
SELECT message_id, body_at FROM messages WHERE message_id = ANY ($1::text[]) ORDER BY message_id FOR SHARE
