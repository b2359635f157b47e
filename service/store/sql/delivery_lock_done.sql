-- A finished delivery, locked.
SELECT delivery_id, state, reason, extra, finished_at
FROM deliveries_done
WHERE delivery_id = $1 AND tenant_id = $2
FOR UPDATE
