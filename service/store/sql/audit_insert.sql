INSERT INTO audit_log (at, tenant_id, key_id, action, target, before, after) VALUES ($1, $2, $3, $4, $5, $6, $7)
