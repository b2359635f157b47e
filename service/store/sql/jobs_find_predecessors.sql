-- The job before each one that names no destination: the one it says it follows, else the subject's job last seen
-- before it (where the profile says that reruns inherit).
SELECT k.tenant_id, k.job_id, p.job_id AS before_id, p.doc
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS k (tenant_id, job_id, previous_job_id, subject_id)
LEFT JOIN jobs AS own ON own.tenant_id = k.tenant_id AND own.job_id = k.job_id
CROSS JOIN LATERAL (
    SELECT named.job_id, named.doc
    FROM jobs AS named
    WHERE named.tenant_id = k.tenant_id AND named.job_id = k.previous_job_id
    UNION ALL
    (
        SELECT earlier.job_id, earlier.doc
        FROM jobs AS earlier
        WHERE
            k.previous_job_id IS NULL
            AND earlier.tenant_id = k.tenant_id
            AND earlier.subject_id = k.subject_id
            AND earlier.job_id <> k.job_id
            AND (own.seen_seq IS NULL OR earlier.seen_seq < own.seen_seq)
        ORDER BY earlier.seen_seq DESC
        LIMIT 1
    )
    LIMIT 1
) AS p
