-- When the oldest unfinished member of a batch was created, among its first ten thousand.
SELECT min(coalesce(j.created_at, j.updated_at))
FROM (
    SELECT created_at, updated_at, phase, generation, removed_generation
    FROM jobs
    WHERE batch_key = $1
    LIMIT 10000
) AS j
WHERE j.phase IN (1, 2) AND j.generation > j.removed_generation
