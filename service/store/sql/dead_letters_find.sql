SELECT dead_letter_id, received_at, topic, partition, kafka_offset, reason, detail, key, headers, value, size, sha256,
    mirrored_at, replayed_at
FROM dead_letters
WHERE dead_letter_id = $1
