-- Delete dead letters by id.
WITH gone AS (
    DELETE FROM dead_letters WHERE dead_letter_id = ANY ($1::bigint[]) RETURNING dead_letter_id
)
SELECT count(*)::integer AS dead_letters FROM gone
