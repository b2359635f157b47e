-- A finished delivery goes back into the queue for one extra attempt, with what it goes back to if that fails. None
-- comes back if the body is gone, or if the message waits for this webhook in another delivery.
WITH chosen AS (
    SELECT d.delivery_id, d.finished_at, m.body_at AS body_now_at
    FROM deliveries_done AS d
    JOIN messages AS m ON m.message_id = d.message_id AND m.expunged_at IS NULL
    JOIN message_bodies AS b ON b.message_id = m.message_id AND b.body_at = m.body_at
    WHERE
        d.delivery_id = $1 AND d.finished_at = $2
        AND NOT EXISTS (SELECT FROM deliveries AS o WHERE o.message_id = d.message_id AND o.webhook_key = $3)
),
gone AS (
    DELETE FROM deliveries_done AS d
    USING chosen AS c
    WHERE d.delivery_id = c.delivery_id AND d.finished_at = c.finished_at
    RETURNING d.*, c.body_now_at
)
INSERT INTO deliveries (
    delivery_id, tenant_id, webhook_key, lane, message_id, body_at, type, scope, group_key, batch_key, job_id,
    generation, state, attempts, created_at, first_due_at, due_at, extra, resume_state, resume_reason, last_class,
    last_error
)
SELECT
    g.delivery_id, g.tenant_id, $3, $4, g.message_id, g.body_now_at, g.type, g.scope, g.group_key, g.batch_key, g.job_id,
    g.generation, 0, g.attempts, g.created_at, g.first_due_at, now(), g.extra, g.state, g.reason, g.last_class,
    g.last_error
FROM gone AS g
RETURNING delivery_id
