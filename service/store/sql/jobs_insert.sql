-- Store jobs that were not known when the transaction looked. One that another transaction stored meanwhile is left
-- out of the answer: the caller starts over.
INSERT INTO jobs (
    tenant_id, job_id, generation, phase, batch_key, batch_generation, removed_generation, subject_id, created_at,
    started_at, completed_at, doc
)
SELECT
    n.tenant_id, n.job_id, n.generation, n.phase, n.batch_key, n.batch_generation, n.removed_generation, n.subject_id,
    n.created_at, n.started_at, n.completed_at, n.doc
FROM unnest(
    $1::text[], $2::text[], $3::integer[], $4::smallint[], $5::bigint[], $6::integer[], $7::integer[], $8::text[],
    $9::timestamptz[], $10::timestamptz[], $11::timestamptz[], $12::bytea[]
) WITH ORDINALITY AS n (
    tenant_id, job_id, generation, phase, batch_key, batch_generation, removed_generation, subject_id, created_at,
    started_at, completed_at, doc, position
)
ORDER BY n.position
ON CONFLICT (tenant_id, job_id) DO NOTHING
RETURNING job_id
