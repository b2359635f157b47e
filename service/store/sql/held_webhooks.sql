-- Webhooks with deliveries that are held for one reason.
SELECT DISTINCT webhook_key FROM deliveries WHERE state = 2 AND reason = $1::text
