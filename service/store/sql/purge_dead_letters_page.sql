-- The next $2 dead letters, by id, that may be a tenant's: its id, in one of the forms $3, is in the value, or it is the
-- key's beginning ($4). Whether they are is seen in their bytes.
SELECT l.dead_letter_id, l.key, l.value
FROM dead_letters AS l
WHERE
    l.dead_letter_id > $1::bigint
    AND (
        substring(l.key FROM 1 FOR octet_length($4::bytea)) = $4::bytea
        OR EXISTS (SELECT FROM unnest($3::bytea[]) AS f (form) WHERE position(f.form IN l.value) > 0)
    )
ORDER BY l.dead_letter_id
LIMIT $2::integer
