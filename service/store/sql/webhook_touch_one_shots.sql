-- Workers must sign for the tenant's one-shot URLs with the new secret.
UPDATE webhooks SET revision = revision + 1, changed_at = clock_timestamp()
WHERE tenant_id = $1 AND kind = 2 AND deleted_at IS NULL
