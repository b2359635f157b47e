-- Lock, in key order, the incarnations that some events may concern: the newest of each name, those with an id that is
-- mentioned, those that a mentioned event ended or sealed, and those of known jobs.
WITH named AS (
    SELECT DISTINCT n.tenant_id, n.name, n.id, n.event_id
    FROM unnest($1::text[], $2::text[], $3::text[], $4::text[]) AS n (tenant_id, name, id, event_id)
),
wanted AS (
    SELECT newest.batch_key
    FROM (SELECT DISTINCT tenant_id, name FROM named) AS n
    CROSS JOIN LATERAL (
        SELECT b.batch_key
        FROM batches AS b
        WHERE b.tenant_id = n.tenant_id AND b.name = n.name
        ORDER BY b.seq DESC
        LIMIT 1
    ) AS newest
    UNION
    SELECT b.batch_key
    FROM named AS n
    JOIN batches AS b ON b.tenant_id = n.tenant_id AND b.name = n.name AND b.incarnation_id = n.id
    UNION
    SELECT b.batch_key
    FROM named AS n
    JOIN batches AS b ON b.tenant_id = n.tenant_id AND b.name = n.name AND n.event_id IN (b.ended_by, b.sealed_by)
    UNION
    SELECT unnest($5::bigint[])
)
SELECT b.*
FROM batches AS b
JOIN wanted USING (batch_key)
ORDER BY b.batch_key
FOR UPDATE OF b
