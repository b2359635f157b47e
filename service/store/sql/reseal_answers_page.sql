-- The next $2 answers that are kept for repeated requests.
SELECT scope_hash AS key, tenant_id, encode(scope_hash, 'hex') AS name, answer AS sealed
FROM idempotency
WHERE scope_hash > $1::bytea
ORDER BY scope_hash
LIMIT $2::integer
