-- One maker of partitions at a time: CREATE TABLE IF NOT EXISTS fails when two come at once.
SELECT pg_advisory_xact_lock($1::integer, $2::integer)
