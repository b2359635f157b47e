SELECT dead_letter_id, topic, partition, kafka_offset, reason, detail, key, headers, value, size, sha256
FROM dead_letters
WHERE dead_letter_id = $1
