-- Of the partitions that one process owns: several processes copy, each letter once.
SELECT d.dead_letter_id, d.topic, d.partition, d.kafka_offset, d.reason, d.detail, d.key, d.headers, d.value, d.size,
    d.sha256
FROM dead_letters AS d
JOIN kafka_offsets AS o ON o.topic = d.topic AND o.partition = d.partition AND starts_with(o.owner, $1)
WHERE d.mirrored_at IS NULL
ORDER BY d.dead_letter_id
LIMIT $2
