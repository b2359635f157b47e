-- Try again what was held after a fault of ours.
UPDATE deliveries
SET state = 0, reason = NULL, held_at = NULL, due_at = now()
WHERE delivery_id = $1 AND lease_token IS NULL
