UPDATE jobs AS j
SET
    generation = n.generation,
    phase = n.phase,
    batch_key = n.batch_key,
    batch_generation = n.batch_generation,
    removed_generation = n.removed_generation,
    subject_id = n.subject_id,
    created_at = n.created_at,
    started_at = n.started_at,
    completed_at = n.completed_at,
    doc = n.doc,
    updated_at = now()
FROM unnest($1::job_input[]) AS n
WHERE j.tenant_id = n.tenant_id AND j.job_id = n.job_id
