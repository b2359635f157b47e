SELECT message_id, webhook_key FROM deliveries_done WHERE message_id = ANY($1::text[]) AND webhook_key IS NOT NULL
