SELECT message_id, body_at FROM messages WHERE message_id = ANY($1::text[])
