-- Members of a batch, newest first: those that were first seen before the one given.
SELECT *
FROM jobs
WHERE batch_key = $1 AND seen_seq < $2 AND phase > 0 AND generation > removed_generation
ORDER BY seen_seq DESC
LIMIT $3
