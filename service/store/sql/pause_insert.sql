-- A pause; one that is there already stays as it is.
INSERT INTO operator_pauses AS p (scope, tenant_id, host, reason, created_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (scope, coalesce(tenant_id, ''), coalesce(host, '')) WHERE ended_at IS NULL DO UPDATE SET scope = excluded.scope
RETURNING pause_id, scope, tenant_id, host, reason, created_by, created_at, xmax = 0 AS new
