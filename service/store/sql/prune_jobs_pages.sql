-- How many pages the jobs take up.
SELECT pg_relation_size('jobs') / current_setting('block_size')::bigint AS pages
