-- Delete answers that are kept for a tenant's repeated requests, at most $2 at a time.
WITH page AS (
    SELECT scope_hash FROM idempotency WHERE tenant_id = $1 ORDER BY scope_hash LIMIT $2::integer FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM idempotency AS i USING page AS p WHERE i.scope_hash = p.scope_hash RETURNING i.scope_hash
)
SELECT count(*)::integer AS idempotency FROM gone
