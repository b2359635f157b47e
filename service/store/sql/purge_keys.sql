-- Delete API keys of a tenant, at most $2 at a time.
WITH page AS (
    SELECT key_seq FROM api_keys WHERE tenant_id = $1 ORDER BY key_seq LIMIT $2::integer FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM api_keys AS k USING page AS p WHERE k.key_seq = p.key_seq RETURNING k.key_seq
)
SELECT count(*)::integer AS api_keys FROM gone
