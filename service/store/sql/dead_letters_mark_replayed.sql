UPDATE dead_letters SET replayed_at = now() WHERE dead_letter_id = $1
