-- Make sure that these webhooks have a row to lock.
INSERT INTO webhook_health (webhook_key)
SELECT w.webhook_key
FROM webhooks AS w
WHERE w.webhook_key = ANY ($1::bigint[])
ORDER BY w.webhook_key
ON CONFLICT (webhook_key) DO NOTHING
