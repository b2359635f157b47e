-- Deliveries held by pause or disable for longer than their schedule lasts ($1 seconds where a webhook has none of its
-- own) end as failed, some of each webhook; a redelivered one goes back to what it was. A live batch's newest finish
-- stays. What operators pause does not end, and the time of their pauses does not count. Returns what ended.
WITH RECURSIVE keys (webhook_key) AS (
    (SELECT d.webhook_key FROM deliveries AS d WHERE d.state = 2 ORDER BY d.webhook_key LIMIT 1)
    UNION ALL
    SELECT
        (
            SELECT d.webhook_key FROM deliveries AS d
            WHERE d.state = 2 AND d.webhook_key > k.webhook_key
            ORDER BY d.webhook_key LIMIT 1
        )
    FROM keys AS k
    WHERE k.webhook_key IS NOT NULL
),
chosen AS (
    SELECT d.delivery_id, w.webhook_id
    FROM keys AS k
    JOIN webhooks AS w ON w.webhook_key = k.webhook_key
    CROSS JOIN LATERAL (
        SELECT now() - schedule_span(w.retry_schedule, $1) AS begun_before
        OFFSET 0 -- worked out once a webhook, not once a delivery
    ) AS due
    CROSS JOIN LATERAL (
        SELECT o.delivery_id
        FROM deliveries AS o
        WHERE
            o.webhook_key = k.webhook_key AND o.state = 2 AND o.lease_token IS NULL
            AND o.reason IN ('paused', 'disabled')
            AND o.held_at < due.begun_before
            AND o.held_at < due.begun_before - paused_since(o.held_at, w.tenant_id, w.origin)
            AND NOT EXISTS (
                SELECT FROM batches AS b
                WHERE
                    o.scope = 0 AND b.batch_key = o.batch_key AND b.finish_message_id = o.message_id
                    AND b.ended_at IS NULL
            )
        ORDER BY o.held_at
        LIMIT $2::integer
        FOR UPDATE SKIP LOCKED
    ) AS d
    WHERE
        NOT EXISTS (
            SELECT FROM operator_pauses AS p WHERE p.ended_at IS NULL AND names_webhook(p, w.tenant_id, w.origin)
        )
),
gone AS (
    DELETE FROM deliveries AS d
    USING chosen AS c
    WHERE d.delivery_id = c.delivery_id
    RETURNING d.*, c.webhook_id
),
history AS (
    INSERT INTO deliveries_done (
        delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
        generation, state, reason, attempts, created_at, first_due_at, finished_at, extra, last_class, last_error
    )
    SELECT
        d.delivery_id, d.tenant_id, d.webhook_key, d.webhook_id, d.message_id, d.body_at, d.type, d.scope, d.group_key,
        d.batch_key, d.job_id, d.generation, CASE WHEN d.resume_state >= 4 THEN d.resume_state ELSE 5 END,
        CASE WHEN d.resume_state >= 4 THEN d.resume_reason ELSE 'held_too_long' END, d.attempts, d.created_at,
        d.first_due_at, now(), d.extra, d.last_class, d.last_error
    FROM gone AS d
)
SELECT
    g.delivery_id, g.message_id, g.webhook_id, g.tenant_id, b.name AS batch, g.job_id, g.attempts,
    CASE WHEN g.resume_state >= 4 THEN g.resume_state ELSE 5 END AS state,
    CASE WHEN g.resume_state >= 4 THEN g.resume_reason ELSE 'held_too_long' END AS reason
FROM gone AS g
LEFT JOIN batches AS b ON b.batch_key = g.batch_key
