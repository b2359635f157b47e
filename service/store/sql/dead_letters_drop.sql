DELETE FROM dead_letters WHERE dead_letter_id = ANY ($1::bigint[])
