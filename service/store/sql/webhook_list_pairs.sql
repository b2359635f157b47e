-- Webhooks of a tenant with an Ed25519 key pair, newest first.
SELECT webhook_key, webhook_id, secrets
FROM webhooks
WHERE tenant_id = $1 AND webhook_key < $2 AND signing = 'ed25519' AND deleted_at IS NULL
ORDER BY webhook_key DESC
LIMIT $3
