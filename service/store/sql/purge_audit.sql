-- Delete entries of the audit log that are about a tenant, at most $2 at a time.
WITH page AS (
    SELECT audit_id FROM audit_log WHERE tenant_id = $1 ORDER BY audit_id LIMIT $2::integer FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM audit_log AS a USING page AS p WHERE a.audit_id = p.audit_id RETURNING a.audit_id
)
SELECT count(*)::integer AS audit_log FROM gone
