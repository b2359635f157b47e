-- Take the leader's lock for this session, if it is free.
SELECT pg_try_advisory_lock($1::integer, $2::integer)
