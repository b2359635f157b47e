-- The next $3 tenants after $1 that have messages, and whether the oldest is from before $2.
WITH RECURSIVE visited (tenant_id, position) AS (
    SELECT (SELECT m.tenant_id FROM messages AS m WHERE m.tenant_id > $1 ORDER BY m.tenant_id LIMIT 1), 1
    UNION ALL
    SELECT
        (SELECT m.tenant_id FROM messages AS m WHERE m.tenant_id > v.tenant_id ORDER BY m.tenant_id LIMIT 1),
        v.position + 1
    FROM visited AS v
    WHERE v.tenant_id IS NOT NULL AND v.position < $3::integer
)
SELECT
    v.tenant_id,
    (SELECT min(m.created_at) FROM messages AS m WHERE m.tenant_id = v.tenant_id) < $2::timestamptz AS due
FROM visited AS v
WHERE v.tenant_id IS NOT NULL
ORDER BY v.tenant_id
