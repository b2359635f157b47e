-- Account webhooks of a tenant.
SELECT count(*) FROM webhooks WHERE tenant_id = $1 AND kind = 1 AND deleted_at IS NULL
