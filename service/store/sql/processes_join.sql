-- Count this connection's process as a live one, for as long as the connection lasts.
SELECT pg_advisory_lock_shared($1::integer, $2::integer)
