-- Delete jobs of a tenant, at most $2 at a time; one that ingest holds is left for the next look.
WITH page AS (
    SELECT job_id FROM jobs WHERE tenant_id = $1 ORDER BY job_id LIMIT $2::integer FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM jobs AS j USING page AS p WHERE j.tenant_id = $1 AND j.job_id = p.job_id RETURNING j.job_id
)
SELECT count(*)::integer AS jobs FROM gone
