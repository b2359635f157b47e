-- Store work and what it has come to, in one round trip. $1: jobs that were not known when the transaction looked; one
-- that another transaction stored meanwhile is left out of the count, and the caller starts over. $2: known jobs. $3:
-- messages with their bodies, which go to the partition of $4; one that is known already is left as it is, and only ids
-- that are new come back.
WITH new_jobs AS (
    INSERT INTO jobs (
        tenant_id, job_id, generation, phase, batch_key, batch_generation, removed_generation, subject_id, created_at,
        started_at, completed_at, doc
    )
    SELECT
        n.tenant_id, n.job_id, n.generation, n.phase, n.batch_key, n.batch_generation, n.removed_generation,
        n.subject_id, n.created_at, n.started_at, n.completed_at, n.doc
    FROM unnest($1::job_input[]) AS n
    ON CONFLICT (tenant_id, job_id) DO NOTHING
    RETURNING 1
),
known_jobs AS (
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
    FROM unnest($2::job_input[]) AS n
    WHERE j.tenant_id = n.tenant_id AND j.job_id = n.job_id
),
given AS (
    SELECT * FROM unnest($3::message_input[]) AS n
),
new_messages AS (
    INSERT INTO messages (
        message_id, tenant_id, type, scope, batch_key, job_id, generation, source, finished_at, body_at, size,
        renotified
    )
    SELECT
        n.message_id, n.tenant_id, n.type, n.scope, n.batch_key, n.job_id, n.generation, n.source, n.finished_at,
        $4::timestamptz, octet_length(n.body), n.renotified
    FROM given AS n
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
),
bodies AS (
    INSERT INTO message_bodies (message_id, body_at, body, trace)
    SELECT n.message_id, $4::timestamptz, n.body, n.trace
    FROM given AS n
    JOIN new_messages USING (message_id)
)
SELECT (SELECT count(*) FROM new_jobs) AS jobs, ARRAY(SELECT message_id FROM new_messages) AS messages
