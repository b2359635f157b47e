-- False while another transaction answers the same request.
SELECT pg_try_advisory_xact_lock($1)
