-- The database's clock, as seconds since 1970.
SELECT extract(EPOCH FROM clock_timestamp())::double precision
