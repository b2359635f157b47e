SELECT dead_letter_id, received_at, topic, partition, kafka_offset, reason, detail, size, replayed_at
FROM dead_letters
WHERE dead_letter_id < $1 AND ($2::text IS NULL OR reason = $2)
ORDER BY dead_letter_id DESC
LIMIT $3
