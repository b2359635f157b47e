-- Delete the tenant's own row, once nothing hangs on it.
WITH gone AS (
    DELETE FROM tenants AS t
    WHERE t.tenant_id = $1 AND NOT EXISTS (SELECT FROM webhooks AS w WHERE w.tenant_id = t.tenant_id)
    RETURNING t.tenant_id
)
SELECT count(*)::integer AS tenants FROM gone
