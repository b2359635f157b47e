-- Deliveries that waited for one of these, which have left the queue, are due at once.
UPDATE deliveries AS d
SET waits_for = NULL, due_at = CASE WHEN d.state < 2 THEN now() END
WHERE d.waits_for = ANY ($1::bigint[])
RETURNING d.delivery_id
