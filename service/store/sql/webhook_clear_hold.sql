-- The receiver's request for rest is over.
UPDATE webhook_health SET held_until = NULL, updated_at = now() WHERE webhook_key = $1
