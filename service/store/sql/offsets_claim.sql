INSERT INTO kafka_offsets (topic, partition, owner)
SELECT topic, partition, $1 FROM unnest($2::text[], $3::integer[]) AS given (topic, partition)
ORDER BY topic, partition
ON CONFLICT (topic, partition) DO UPDATE SET owner = EXCLUDED.owner, updated_at = now()
RETURNING topic, partition, next_offset, catch_up_until
