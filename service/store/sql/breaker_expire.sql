-- Behind an open breaker a delivery still ends, at its first due time plus its schedule's total ($1 seconds where a
-- webhook has none of its own): the oldest of each webhook are looked at. What operators pause does not end, and the time
-- of their pauses does not count. Returns what ended.
WITH chosen AS (
    SELECT d.delivery_id, w.webhook_id
    FROM webhook_health AS h
    JOIN webhooks AS w ON w.webhook_key = h.webhook_key AND w.state = 0
    CROSS JOIN LATERAL (
        SELECT now() - schedule_span(w.retry_schedule, $1) AS begun_before
        OFFSET 0 -- worked out once a webhook, not once a delivery
    ) AS due
    CROSS JOIN LATERAL (
        SELECT old.delivery_id
        FROM (
            SELECT o.delivery_id, o.first_due_at
            FROM deliveries AS o
            WHERE
                o.webhook_key = h.webhook_key AND o.lease_token IS NULL AND o.state < 2 AND o.resume_state IS NULL
                AND o.extra <> 1
            ORDER BY o.delivery_id
            LIMIT $2::integer
            FOR UPDATE SKIP LOCKED
        ) AS old
        WHERE
            old.first_due_at <= due.begun_before
            AND old.first_due_at <= due.begun_before - paused_since(old.first_due_at, w.tenant_id, w.origin)
    ) AS d
    WHERE
        h.breaker = 1
        AND NOT EXISTS (
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
        d.batch_key, d.job_id, d.generation, 5, 'exhausted', d.attempts, d.created_at, d.first_due_at, now(), d.extra,
        d.last_class, d.last_error
    FROM gone AS d
)
SELECT
    g.delivery_id, g.message_id, g.webhook_id, g.tenant_id, b.name AS batch, g.job_id, g.attempts, 5 AS state,
    'exhausted' AS reason
FROM gone AS g
LEFT JOIN batches AS b ON b.batch_key = g.batch_key
