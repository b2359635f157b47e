UPDATE kafka_offsets SET next_offset = given.first, catch_up_until = given.ending, updated_at = now()
FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::bigint[]) AS given (topic, partition, first, ending)
WHERE kafka_offsets.topic = given.topic AND kafka_offsets.partition = given.partition
    AND owner = $1 AND next_offset IS NULL
