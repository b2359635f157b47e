-- The members of a batch, newest finish first, as many as a body can hold.
SELECT *
FROM jobs
WHERE batch_key = $1 AND phase > 0 AND generation > removed_generation
ORDER BY batch_generation DESC NULLS FIRST, seen_seq
LIMIT $2
