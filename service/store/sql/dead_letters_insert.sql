INSERT INTO dead_letters (topic, partition, kafka_offset, reason, detail, key, headers, value, size, sha256)
SELECT * FROM unnest(
    $1::text[], $2::integer[], $3::bigint[], $4::text[], $5::text[], $6::bytea[], $7::bytea[], $8::bytea[],
    $9::bigint[], $10::bytea[]
)
ON CONFLICT (topic, partition, kafka_offset) DO NOTHING
