-- Lock jobs of batches that were forgotten, at most $3, those which had an event since $2 left out.
SELECT j.tenant_id, j.job_id
FROM jobs AS j
WHERE j.batch_key = ANY ($1::bigint[]) AND j.updated_at < $2::timestamptz
LIMIT $3::integer
FOR UPDATE SKIP LOCKED
