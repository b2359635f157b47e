-- Store jobs that were not known when the transaction looked. One that another transaction stored meanwhile is left
-- out of the answer: the caller starts over.
INSERT INTO jobs (
    tenant_id, job_id, generation, phase, batch_key, batch_generation, removed_generation, subject_id, created_at,
    started_at, completed_at, doc
)
SELECT
    n.tenant_id, n.job_id, n.generation, n.phase, n.batch_key, n.batch_generation, n.removed_generation, n.subject_id,
    n.created_at, n.started_at, n.completed_at, n.doc
FROM unnest($1::job_input[]) AS n
ON CONFLICT (tenant_id, job_id) DO NOTHING
RETURNING job_id
