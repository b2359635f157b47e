-- The next $2 webhooks with secrets of their own, deleted ones too.
SELECT webhook_key AS key, tenant_id, webhook_id AS name, secrets AS sealed
FROM webhooks
WHERE webhook_key > $1::bigint AND secrets IS NOT NULL
ORDER BY webhook_key
LIMIT $2::integer
