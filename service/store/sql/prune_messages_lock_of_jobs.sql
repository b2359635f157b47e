-- Lock the messages of locked jobs; a job of which one is missing here stays until the next pass.
SELECT m.message_id
FROM unnest($1::text[], $2::text[]) AS k (tenant_id, job_id)
JOIN messages AS m ON m.tenant_id = k.tenant_id AND m.job_id = k.job_id
LIMIT $3::integer
FOR UPDATE OF m SKIP LOCKED
