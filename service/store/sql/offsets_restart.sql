-- A log that ends before what was its end at the first read is another log: nothing in it is from before that.
UPDATE kafka_offsets
SET next_offset = given.first, catch_up_until = CASE WHEN next_offset > given.ending THEN 0 ELSE catch_up_until END,
    updated_at = now()
FROM unnest($2::text[], $3::integer[], $4::bigint[], $5::bigint[]) AS given (topic, partition, first, ending)
WHERE kafka_offsets.topic = given.topic AND kafka_offsets.partition = given.partition AND owner = $1
