SELECT dead_letter_id
FROM dead_letters
WHERE reason = $1 AND replayed_at IS NULL
ORDER BY dead_letter_id
LIMIT $2
