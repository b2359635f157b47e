-- The extremes of the members' times.
SELECT min(created_at) AS created_at, min(started_at) AS started_at, max(completed_at) AS completed_at
FROM jobs
WHERE batch_key = $1 AND phase > 0 AND generation > removed_generation
