-- A message's delivery for one webhook, in the queue or in history.
SELECT delivery_id, state, lease_token IS NOT NULL AS on_wire
FROM deliveries
WHERE message_id = $1 AND webhook_key = $2
UNION ALL
SELECT delivery_id, state, false
FROM deliveries_done
WHERE message_id = $1 AND webhook_key = $2
LIMIT 1
