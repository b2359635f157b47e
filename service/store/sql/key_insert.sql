INSERT INTO api_keys (key_id, tenant_id, roles, secret_hash, description, created_by, expires_at)
VALUES ($1, $2, $3, $4, $5, $6, $7)
RETURNING key_seq, key_id, tenant_id, roles, secret_hash, description, created_at, expires_at, revoked_at, last_used_at
