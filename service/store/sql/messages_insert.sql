-- Store messages and their bodies; one that is known already is left as it is. Returns the ids that are new.
WITH new AS (
    SELECT *
    FROM unnest($1::message_input[]) AS n
),
stored AS (
    INSERT INTO messages (
        message_id, tenant_id, type, scope, batch_key, job_id, generation, source, finished_at, body_at, size,
        renotified, quiet
    )
    SELECT
        n.message_id, n.tenant_id, n.type, n.scope, n.batch_key, n.job_id, n.generation, n.source, n.finished_at,
        $2::timestamptz, octet_length(n.body), n.renotified, n.quiet
    FROM new AS n
    ON CONFLICT (message_id) DO NOTHING
    RETURNING message_id
)
INSERT INTO message_bodies (message_id, body_at, body, trace)
SELECT n.message_id, $2::timestamptz, n.body, n.trace
FROM new AS n
JOIN stored USING (message_id)
RETURNING message_id
