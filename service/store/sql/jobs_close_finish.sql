-- Number the runs that a finish is the first to show.
UPDATE jobs
SET batch_generation = $2
WHERE batch_key = $1 AND batch_generation IS NULL AND phase > 0 AND generation > removed_generation
