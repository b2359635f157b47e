SELECT * FROM jobs WHERE tenant_id = $1 AND job_id = $2
