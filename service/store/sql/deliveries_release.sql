-- Take leases off without an outcome: handed back by their worker, or rescued once they expired ($5). An unflagged
-- delivery goes back to the queue, due when it was or at the given instant, but not in the past, where no claim may look
-- any more, and if wanted in the lane that only its webhook has; a flagged one becomes what its flag says (a redelivered
-- one, what it was). Returns every delivery that lost its lease, and the code of the state it ended in if it left the queue.
WITH given AS (
    SELECT d.delivery_id, d.flag, g.due, g.aside, coalesce(d.resume_state, 0) >= 4 AS replay
    FROM unnest($1::bigint[], $2::bigint[], $3::double precision[], $4::boolean[]) AS g (delivery_id, token, due, aside)
    JOIN deliveries AS d ON d.delivery_id = g.delivery_id
    WHERE d.lease_token = g.token AND (NOT $5::boolean OR d.lease_until < now())
    ORDER BY d.delivery_id
    FOR UPDATE OF d
),
freed AS (
    UPDATE deliveries AS d
    SET
        lease_token = NULL, lease_until = NULL,
        due_at = greatest(coalesce(to_timestamp(g.due), d.due_at), now()),
        lane = CASE WHEN g.aside THEN d.webhook_key ELSE d.lane END
    FROM given AS g
    WHERE d.delivery_id = g.delivery_id AND g.flag = 0
    RETURNING d.delivery_id
),
restarted AS (
    UPDATE deliveries AS d
    SET
        lease_token = NULL, lease_until = NULL, due_at = now(), first_due_at = now(), state = 0, reason = NULL,
        attempts_before = attempts, flag = 0, flag_reason = NULL,
        resume_state = NULL, resume_reason = NULL, resume_due_at = NULL
    FROM given AS g
    WHERE d.delivery_id = g.delivery_id AND g.flag = 4 AND NOT g.replay
    RETURNING d.delivery_id
),
held AS (
    UPDATE deliveries AS d
    SET
        lease_token = NULL, lease_until = NULL, due_at = NULL, state = 2, reason = d.flag_reason, held_at = now(),
        flag = 0, flag_reason = NULL, resume_state = NULL, resume_reason = NULL, resume_due_at = NULL
    FROM given AS g
    WHERE d.delivery_id = g.delivery_id AND g.flag = 3 AND NOT g.replay
    RETURNING d.delivery_id
),
gone AS (
    DELETE FROM deliveries AS d
    USING given AS g
    WHERE d.delivery_id = g.delivery_id AND (g.flag IN (1, 2) OR g.replay AND g.flag > 0)
    RETURNING
        d.*, CASE WHEN g.replay THEN d.resume_state ELSE d.flag + 5 END AS to_state,
        CASE WHEN g.replay THEN d.resume_reason ELSE d.flag_reason END AS to_reason
),
history AS (
    INSERT INTO deliveries_done (
        delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
        generation, state, reason, attempts, created_at, first_due_at, finished_at, extra, last_class, last_error
    )
    SELECT
        d.delivery_id, d.tenant_id, d.webhook_key, coalesce(w.webhook_id, ''), d.message_id, d.body_at, d.type, d.scope,
        d.group_key, d.batch_key, d.job_id, d.generation, d.to_state, d.to_reason, d.attempts, d.created_at,
        d.first_due_at, now(), d.extra, d.last_class, d.last_error
    FROM gone AS d
    LEFT JOIN webhooks AS w ON w.webhook_key = d.webhook_key
)
SELECT delivery_id, NULL::integer AS ended FROM freed
UNION ALL
SELECT delivery_id, NULL FROM restarted
UNION ALL
SELECT delivery_id, NULL FROM held
UNION ALL
SELECT delivery_id, to_state FROM gone
