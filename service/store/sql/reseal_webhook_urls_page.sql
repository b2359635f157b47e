-- The next $2 webhooks, deleted ones too, with their sealed URL.
SELECT webhook_key AS key, tenant_id, webhook_id AS name, url AS sealed
FROM webhooks
WHERE webhook_key > $1::bigint
ORDER BY webhook_key
LIMIT $2::integer
