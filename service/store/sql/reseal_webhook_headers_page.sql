-- The next $2 webhooks with custom headers, deleted ones too.
SELECT webhook_key AS key, tenant_id, webhook_id AS name, custom_headers AS sealed
FROM webhooks
WHERE webhook_key > $1::bigint AND custom_headers IS NOT NULL
ORDER BY webhook_key
LIMIT $2::integer
