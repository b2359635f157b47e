-- All deliveries of a message: where they stand, and whether their webhook is live.
SELECT d.delivery_id, d.webhook_key, d.state, d.lease_token IS NOT NULL AS on_wire, false AS done
FROM deliveries AS d
WHERE d.message_id = $1
UNION ALL
SELECT d.delivery_id, d.webhook_key, d.state, false, true
FROM deliveries_done AS d
WHERE d.message_id = $1 AND d.webhook_key IS NOT NULL
ORDER BY delivery_id
