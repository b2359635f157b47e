UPDATE dead_letters SET mirrored_at = now() WHERE dead_letter_id = ANY ($1::bigint[])
