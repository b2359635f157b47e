SELECT pause_id, scope, tenant_id, host, reason, created_by, created_at
FROM operator_pauses
WHERE ended_at IS NULL
ORDER BY pause_id DESC
LIMIT 1000
