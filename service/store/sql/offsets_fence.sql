-- The lock comes first and in key order; an owner who was replaced meanwhile finds no row.
WITH given AS (
    SELECT * FROM unnest($2::text[], $3::integer[], $4::bigint[]) AS given (topic, partition, next_offset)
), held AS (
    SELECT topic, partition, given.next_offset
    FROM kafka_offsets JOIN given USING (topic, partition)
    WHERE owner = $1
    ORDER BY topic, partition
    FOR UPDATE OF kafka_offsets
)
UPDATE kafka_offsets SET next_offset = held.next_offset, updated_at = now()
FROM held
WHERE kafka_offsets.topic = held.topic AND kafka_offsets.partition = held.partition AND kafka_offsets.owner = $1
RETURNING kafka_offsets.topic, kafka_offsets.partition
