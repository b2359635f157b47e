-- How many live deliver processes share the work: each holds the same advisory lock, shared, on its own connection.
SELECT count(*)::integer
FROM pg_locks AS l
JOIN pg_database AS b ON b.oid = l.database
WHERE
    l.locktype = 'advisory' AND l.mode = 'ShareLock' AND l.granted AND l.objsubid = 2
    AND l.classid::bigint = $1::integer AND l.objid::bigint = $2::integer AND b.datname = current_database()
