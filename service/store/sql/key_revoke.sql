-- Revoke a key; one that is revoked already keeps its instant.
UPDATE api_keys SET revoked_at = coalesce(revoked_at, $2)
WHERE key_id = $1
RETURNING key_seq, key_id, tenant_id, roles, secret_hash, description, created_at, expires_at, revoked_at, last_used_at
