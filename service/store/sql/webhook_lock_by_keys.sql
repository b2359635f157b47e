-- Live webhooks by row key, locked in key order.
SELECT webhook_key, lane, state FROM webhooks
WHERE webhook_key = ANY ($1::bigint[]) AND deleted_at IS NULL
ORDER BY webhook_key
FOR SHARE
