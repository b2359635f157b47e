-- All members of a batch, as its counters see them.
SELECT job_id, generation, phase, batch_generation IS NULL AS dirty, created_at, started_at, completed_at
FROM jobs
WHERE batch_key = $1 AND phase > 0 AND generation > removed_generation
