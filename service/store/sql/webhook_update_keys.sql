-- Replace the secrets of a webhook.
UPDATE webhooks SET secrets = $2, revision = revision + 1, changed_at = clock_timestamp() WHERE webhook_key = $1
