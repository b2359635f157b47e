-- Keys, newest first; of one tenant if $2 is given.
SELECT key_seq, key_id, tenant_id, roles, secret_hash, description, created_at, expires_at, revoked_at, last_used_at
FROM api_keys
WHERE key_seq < $1 AND ($2::text IS NULL OR tenant_id = $2)
ORDER BY key_seq DESC
LIMIT $3
