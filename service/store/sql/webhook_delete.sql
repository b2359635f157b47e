-- Retire a webhook; the row stays for its history.
UPDATE webhooks
SET deleted_at = $2, revision = revision + 1, changed_at = clock_timestamp()
WHERE webhook_key = $1
