-- The next $3 finished deliveries of a webhook: those that are wanted and have a body still go back into the queue with a
-- fresh schedule, due one after the other.
WITH page AS (
    SELECT d.delivery_id, d.finished_at, d.message_id, d.state, d.reason, d.created_at, d.extra
    FROM deliveries_done AS d
    WHERE d.webhook_key = $1 AND d.delivery_id > $2
    ORDER BY d.delivery_id
    LIMIT $3
),
chosen AS (
    SELECT
        p.delivery_id, p.finished_at, w.lane, w.state AS webhook_state, m.body_at AS body_now_at,
        row_number() OVER (ORDER BY p.delivery_id) AS place
    FROM page AS p
    JOIN webhooks AS w ON w.webhook_key = $1
    JOIN messages AS m ON m.message_id = p.message_id AND m.expunged_at IS NULL
    WHERE
        p.state = ANY ($4::smallint[]) AND ($5::text IS NULL OR p.reason = $5) AND p.created_at >= $6
        AND p.created_at < $7 AND p.extra <> 1
        AND NOT EXISTS (SELECT FROM deliveries AS o WHERE o.message_id = p.message_id AND o.webhook_key = $1)
        AND (SELECT true FROM message_bodies AS o WHERE o.message_id = m.message_id AND o.body_at = m.body_at LIMIT 1)
),
gone AS (
    DELETE FROM deliveries_done AS d
    USING chosen AS c
    WHERE d.delivery_id = c.delivery_id AND d.finished_at = c.finished_at
    RETURNING d.*, c.lane, c.webhook_state, c.body_now_at, c.place
),
queued AS (
    INSERT INTO deliveries (
        delivery_id, tenant_id, webhook_key, lane, message_id, body_at, type, scope, group_key, batch_key, job_id,
        generation, state, reason, attempts, attempts_before, held_at, created_at, first_due_at, due_at, extra
    )
    SELECT
        g.delivery_id, g.tenant_id, $1, g.lane, g.message_id, g.body_now_at, g.type, g.scope, g.group_key, g.batch_key,
        g.job_id, g.generation,
        CASE WHEN g.webhook_state = 0 THEN 0 ELSE 2 END,
        CASE g.webhook_state WHEN 1 THEN 'paused' WHEN 2 THEN 'disabled' END,
        g.attempts, g.attempts,
        CASE WHEN g.webhook_state <> 0 THEN now() END,
        g.created_at,
        now() + make_interval(secs => (g.place - 1)::double precision / $8::integer),
        CASE WHEN g.webhook_state = 0 THEN now() + make_interval(secs => (g.place - 1)::double precision / $8::integer) END,
        2
    FROM gone AS g
    ON CONFLICT DO NOTHING
    RETURNING delivery_id
)
SELECT
    (SELECT count(*) FROM page)::integer AS scanned, (SELECT count(*) FROM queued)::integer AS queued,
    (SELECT max(delivery_id) FROM page) AS last_id
