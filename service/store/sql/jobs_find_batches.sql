-- Which batch each known job is in, and not yet locked: enough to know what to lock.
SELECT j.tenant_id, j.job_id, j.batch_key
FROM unnest($1::text[], $2::text[]) AS k (tenant_id, job_id)
JOIN jobs AS j USING (tenant_id, job_id)
