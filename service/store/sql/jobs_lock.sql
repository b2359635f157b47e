-- Lock known jobs in key order.
SELECT j.*
FROM unnest($1::text[], $2::text[]) AS k (tenant_id, job_id)
JOIN jobs AS j USING (tenant_id, job_id)
ORDER BY j.tenant_id, j.job_id
FOR UPDATE OF j
