-- Forget dead letters that came before $1, at most a thousand at a time: each may have a megabyte.
DELETE FROM dead_letters
WHERE dead_letter_id IN (
    SELECT dead_letter_id FROM dead_letters WHERE received_at < $1 ORDER BY received_at LIMIT 1000
)
