-- Members of a batch by job id, after the one given.
SELECT *
FROM jobs
WHERE batch_key = $1 AND job_id > $2 AND phase > 0 AND generation > removed_generation
ORDER BY job_id
LIMIT $3
