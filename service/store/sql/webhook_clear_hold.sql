-- The receiver's request for rest is over.
UPDATE webhook_health SET held_until = NULL, updated_at = clock_timestamp() WHERE webhook_key = $1
