-- The key with this id, whatever its state.
SELECT key_id, tenant_id, roles, secret_hash, description, created_at, expires_at, revoked_at, last_used_at
FROM api_keys
WHERE key_id = $1
