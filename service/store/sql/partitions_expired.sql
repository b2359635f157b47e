-- Partitions of one table that hold nothing younger than $2 seconds, oldest first.
SELECT name, starts_at, ends_at
FROM partitions
WHERE parent = $1::text AND ends_at <= now() - make_interval(secs => $2::double precision)
ORDER BY starts_at
