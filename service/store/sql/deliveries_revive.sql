-- Finished deliveries go back into the queue with a fresh schedule, due now; held where their webhook is stopped. Those
-- whose webhook is gone, whose body is gone, or that wait already stay in history.
WITH chosen AS (
    SELECT d.delivery_id, d.finished_at, w.lane, w.state AS webhook_state, m.body_at AS body_now_at
    FROM deliveries_done AS d
    JOIN webhooks AS w ON w.webhook_key = d.webhook_key AND w.deleted_at IS NULL
    JOIN messages AS m ON m.message_id = d.message_id AND m.expunged_at IS NULL
    WHERE
        d.delivery_id = ANY ($1::bigint[])
        AND NOT EXISTS (SELECT FROM deliveries AS o WHERE o.message_id = d.message_id AND o.webhook_key = d.webhook_key)
    FOR UPDATE OF d
),
gone AS (
    DELETE FROM deliveries_done AS d
    USING chosen AS c
    WHERE d.delivery_id = c.delivery_id AND d.finished_at = c.finished_at
    RETURNING d.*, c.lane, c.webhook_state, c.body_now_at
)
INSERT INTO deliveries (
    delivery_id, tenant_id, webhook_key, lane, message_id, body_at, type, scope, group_key, batch_key, job_id,
    generation, state, reason, attempts, attempts_before, held_at, created_at, due_at
)
SELECT
    g.delivery_id, g.tenant_id, g.webhook_key, g.lane, g.message_id, g.body_now_at, g.type, g.scope, g.group_key,
    g.batch_key, g.job_id, g.generation,
    CASE WHEN g.webhook_state = 0 THEN 0 ELSE 2 END,
    CASE g.webhook_state WHEN 1 THEN 'paused' WHEN 2 THEN 'disabled' END,
    g.attempts, g.attempts,
    CASE WHEN g.webhook_state <> 0 THEN now() END,
    g.created_at,
    CASE WHEN g.webhook_state = 0 THEN now() END
FROM gone AS g
RETURNING delivery_id
