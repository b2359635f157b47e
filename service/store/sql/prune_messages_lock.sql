-- Lock messages; one that somebody puts to use again (``messages_hold``) is left out.
SELECT m.message_id FROM messages AS m WHERE m.message_id = ANY ($1::text[]) ORDER BY m.message_id FOR UPDATE SKIP LOCKED
