-- End everything that waits for a retired webhook as canceled; what is on the wire is flagged. A redelivery of a
-- finished delivery goes back to how it had ended.
WITH open AS (
    SELECT delivery_id, lease_token IS NOT NULL AS on_wire
    FROM deliveries
    WHERE webhook_key = $1
    ORDER BY delivery_id
    FOR UPDATE
),
flagged AS (
    UPDATE deliveries AS d
    SET flag = 2, flag_reason = $2
    FROM open AS o
    WHERE d.delivery_id = o.delivery_id AND o.on_wire
),
gone AS (
    DELETE FROM deliveries AS d
    USING open AS o
    WHERE d.delivery_id = o.delivery_id AND NOT o.on_wire
    RETURNING d.*
)
INSERT INTO deliveries_done (
    delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
    generation, state, reason, attempts, created_at, first_due_at, finished_at, extra, last_class, last_error
)
SELECT
    g.delivery_id, g.tenant_id, g.webhook_key, w.webhook_id, g.message_id, g.body_at, g.type, g.scope, g.group_key,
    g.batch_key, g.job_id, g.generation,
    CASE WHEN g.resume_state >= 4 THEN g.resume_state ELSE 7 END,
    CASE WHEN g.resume_state >= 4 THEN g.resume_reason ELSE $2 END,
    g.attempts, g.created_at, g.first_due_at, now(), g.extra, g.last_class, g.last_error
FROM gone AS g
JOIN webhooks AS w USING (webhook_key)
