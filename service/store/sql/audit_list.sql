-- The audit log, newest first; of one tenant if $2 is given.
SELECT audit_id, at, tenant_id, key_id, action, target, before, after
FROM audit_log
WHERE audit_id < $1 AND ($2::text IS NULL OR tenant_id = $2)
ORDER BY audit_id DESC
LIMIT $3
