-- A delivery in the queue, locked.
SELECT
    delivery_id, state, reason, extra, resume_state, waits_for, lease_token IS NOT NULL AS on_wire
FROM deliveries
WHERE delivery_id = $1 AND tenant_id = $2
FOR UPDATE
