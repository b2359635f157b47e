-- Forget locked batches ($1) with their finishes, leavers and own webhook, whose health goes by its foreign key.
-- $2: webhooks, $3: messages that are locked too.
-- A batch stays while, since $4, its registration was written or used, or a member had an event; while a message of it, or
-- of a job that is or was in it, came since $5 or is queued; while one of its finishes is in history; and the newest
-- incarnation of a name as long as another one is known, so that the name goes on meaning what it means. Conditions are
-- values, not EXISTS and NOT EXISTS, which a plan may answer by reading all of a table.
WITH going AS (
    SELECT b.batch_key
    FROM batches AS b
    WHERE
        b.batch_key = ANY ($1::bigint[])
        AND (
            b.seq < (SELECT max(o.seq) FROM batches AS o WHERE o.tenant_id = b.tenant_id AND o.name = b.name)
            OR b.seq = (SELECT min(o.seq) FROM batches AS o WHERE o.tenant_id = b.tenant_id AND o.name = b.name)
        )
        AND (SELECT true FROM deliveries AS d WHERE d.group_key = b.batch_key LIMIT 1) IS NULL
        AND (
            SELECT true FROM messages AS m
            WHERE
                m.batch_key = b.batch_key AND m.scope = 0
                AND (
                    m.created_at >= $5::timestamptz OR m.message_id <> ALL ($3::text[])
                    OR (SELECT true FROM deliveries AS d WHERE d.message_id = m.message_id LIMIT 1)
                    OR (SELECT true FROM deliveries_done AS d WHERE d.message_id = m.message_id LIMIT 1)
                )
            LIMIT 1
        ) IS NULL
        AND (
            SELECT true FROM webhooks AS w
            WHERE
                w.batch_key = b.batch_key AND w.kind = 0 AND w.deleted_at IS NULL
                AND (
                    w.changed_at >= $4::timestamptz OR w.webhook_key <> ALL ($2::bigint[])
                    OR (SELECT true FROM deliveries AS d WHERE d.webhook_key = w.webhook_key LIMIT 1)
                    OR (SELECT true FROM deliveries_done AS d WHERE d.webhook_key = w.webhook_key LIMIT 1)
                    OR (SELECT true FROM replays AS r WHERE r.webhook_key = w.webhook_key AND r.state = 'running' LIMIT 1)
                    OR (
                        SELECT true FROM webhook_health AS h
                        WHERE h.webhook_key = w.webhook_key AND h.updated_at >= $4::timestamptz
                    )
                )
            LIMIT 1
        ) IS NULL
        AND (SELECT true FROM jobs AS j WHERE j.batch_key = b.batch_key AND j.updated_at >= $4::timestamptz LIMIT 1) IS NULL
        AND (
            SELECT true FROM (
                SELECT j.job_id FROM jobs AS j WHERE j.batch_key = b.batch_key
                UNION ALL
                SELECT l.job_id FROM batch_leavers AS l WHERE l.batch_key = b.batch_key
            ) AS k
            JOIN messages AS m ON m.tenant_id = b.tenant_id AND m.job_id = k.job_id
            WHERE
                m.batch_key = b.batch_key
                AND (
                    m.created_at >= $5::timestamptz
                    OR (SELECT true FROM deliveries AS d WHERE d.message_id = m.message_id LIMIT 1)
                )
            LIMIT 1
        ) IS NULL
),
told AS (
    DELETE FROM messages AS m
    WHERE m.message_id = ANY ($3::text[]) AND m.batch_key = ANY (ARRAY(SELECT batch_key FROM going))
    RETURNING m.message_id, m.body_at
),
bodies AS (
    DELETE FROM message_bodies AS b
    WHERE b.message_id = ANY (ARRAY(SELECT message_id FROM told)) AND b.body_at = ANY (ARRAY(SELECT body_at FROM told))
),
retired AS (
    SELECT w.webhook_key
    FROM webhooks AS w
    WHERE w.batch_key = ANY (ARRAY(SELECT batch_key FROM going)) AND w.kind = 0 AND w.deleted_at IS NULL
),
trials AS (
    DELETE FROM replay_trials AS t WHERE t.webhook_key = ANY (ARRAY(SELECT webhook_key FROM retired))
),
rollups AS (
    DELETE FROM attempt_rollups AS a WHERE a.webhook_key = ANY (ARRAY(SELECT webhook_key FROM retired))
),
hooks AS (
    DELETE FROM webhooks AS w WHERE w.webhook_key = ANY (ARRAY(SELECT webhook_key FROM retired)) RETURNING w.webhook_key
),
left_it AS (
    DELETE FROM batch_leavers AS l WHERE l.batch_key = ANY (ARRAY(SELECT batch_key FROM going))
),
accepted AS (
    DELETE FROM batch_delivered AS d WHERE d.batch_key = ANY (ARRAY(SELECT batch_key FROM going))
),
gone AS (
    DELETE FROM batches AS b WHERE b.batch_key = ANY (ARRAY(SELECT batch_key FROM going)) RETURNING b.batch_key
)
SELECT
    ARRAY(SELECT batch_key FROM gone) AS keys,
    (SELECT count(*) FROM hooks)::integer AS webhooks,
    (SELECT count(*) FROM told)::integer AS messages
