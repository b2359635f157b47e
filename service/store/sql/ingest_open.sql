-- The first statement of the ingest transaction: one round trip for all that can be asked before anything is locked.
-- The fence comes first and locks in key order; an owner who was replaced meanwhile finds no row. Then which batch each
-- known job is in, not yet locked: enough to know what to lock. Then what routing must know of tenants before it trusts
-- its copy of their webhooks. All but the fence is as of the statement's start; whatever it misses is met as a conflict
-- when the jobs are locked or stored.
WITH given AS (
    SELECT * FROM unnest($2::text[], $3::integer[], $4::bigint[]) AS given (topic, partition, next_offset)
),
held AS (
    SELECT topic, partition, given.next_offset
    FROM kafka_offsets JOIN given USING (topic, partition)
    WHERE owner = $1
    ORDER BY topic, partition
    FOR UPDATE OF kafka_offsets
),
fenced AS (
    UPDATE kafka_offsets SET next_offset = held.next_offset, updated_at = now()
    FROM held
    WHERE kafka_offsets.topic = held.topic AND kafka_offsets.partition = held.partition AND kafka_offsets.owner = $1
    RETURNING kafka_offsets.topic, kafka_offsets.partition
)
SELECT now() AS now, f.topics, f.partitions, k.tenants, k.jobs, k.batches, r.routed, r.versions, r.secrets
FROM (SELECT array_agg(topic) AS topics, array_agg(partition) AS partitions FROM fenced) AS f
CROSS JOIN (
    SELECT array_agg(j.tenant_id) AS tenants, array_agg(j.job_id) AS jobs, array_agg(j.batch_key) AS batches
    FROM unnest($5::text[], $6::text[]) AS k (tenant_id, job_id)
    JOIN jobs AS j USING (tenant_id, job_id)
) AS k
CROSS JOIN (
    SELECT
        array_agg(k.tenant_id) AS routed, array_agg(coalesce(t.routing_version, 0)) AS versions,
        array_agg(t.signing_secrets IS NOT NULL) AS secrets
    FROM unnest($7::text[]) AS k (tenant_id)
    LEFT JOIN tenants AS t USING (tenant_id)
) AS r
