-- Record attempts that were not accepted, with what was decided about their deliveries. A decision holds only while
-- the lease is ours and the flag is the one that was decided upon. Live states (below 4) stay in the queue, done ones
-- move to history. The attempts of the present schedule are $6; all others were made before it, or beside it. An attempt
-- without an outcome word is not logged. Returns the deliveries that are recorded.
WITH given AS (
    SELECT *
    FROM unnest(
        $1::bigint[], $2::bigint[], $3::smallint[], $4::smallint[], $5::text[], $6::integer[], $7::double precision[],
        $8::boolean[], $9::text[], $10::integer[], $11::double precision[], $12::integer[], $13::text[],
        $14::smallint[], $15::text[], $16::text[], $17::text[], $18::bytea[], $19::boolean[]
    ) AS g (
        delivery_id, token, flag, to_state, to_reason, spent, due, restarted, error, number, started, duration_ms,
        outcome, status, detail, flags, origin, excerpt, stale
    )
),
moved AS (
    UPDATE deliveries AS d
    SET
        state = g.to_state, reason = g.to_reason,
        due_at = CASE WHEN g.due IS NOT NULL THEN greatest(to_timestamp(g.due), now()) END,
        attempts = d.attempts + (g.outcome IS NOT NULL)::integer,
        attempts_before = d.attempts + (g.outcome IS NOT NULL)::integer - g.spent,
        first_due_at = CASE WHEN g.restarted THEN to_timestamp(g.due) ELSE d.first_due_at END,
        held_at = CASE WHEN g.to_state = 2 THEN coalesce(d.held_at, now()) END,
        lease_token = NULL, lease_until = NULL, flag = 0, flag_reason = NULL,
        resume_state = NULL, resume_reason = NULL, resume_due_at = NULL,
        last_class = coalesce(g.outcome, d.last_class), last_error = coalesce(g.error, d.last_error)
    FROM given AS g
    WHERE d.delivery_id = g.delivery_id AND d.lease_token = g.token AND d.flag = g.flag AND g.to_state < 4
    RETURNING d.delivery_id, d.webhook_key
),
gone AS (
    DELETE FROM deliveries AS d
    USING given AS g
    WHERE d.delivery_id = g.delivery_id AND d.lease_token = g.token AND d.flag = g.flag AND g.to_state >= 4
    RETURNING d.*, g.to_state, g.to_reason, g.outcome, g.error
),
history AS (
    INSERT INTO deliveries_done (
        delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
        generation, state, reason, attempts, created_at, first_due_at, finished_at, extra, last_class, last_error
    )
    SELECT
        d.delivery_id, d.tenant_id, d.webhook_key, coalesce(w.webhook_id, ''), d.message_id, d.body_at, d.type, d.scope,
        d.group_key, d.batch_key, d.job_id, d.generation, d.to_state, d.to_reason,
        d.attempts + (d.outcome IS NOT NULL)::integer, d.created_at, d.first_due_at, now(), d.extra,
        coalesce(d.outcome, d.last_class), coalesce(d.error, d.last_error)
    FROM gone AS d
    LEFT JOIN webhooks AS w ON w.webhook_key = d.webhook_key
),
recorded AS (
    SELECT delivery_id, webhook_key, false AS ended FROM moved
    UNION ALL
    SELECT delivery_id, webhook_key, true FROM gone
),
logged AS (
    INSERT INTO attempts (
        delivery_id, number, started_at, webhook_key, duration_ms, outcome, status, detail, flags, origin, excerpt,
        next_at, superfluous
    )
    SELECT
        g.delivery_id, g.number, to_timestamp(g.started), d.webhook_key, g.duration_ms, g.outcome, g.status, g.detail,
        string_to_array(g.flags, ','), g.origin, g.excerpt, to_timestamp(g.due), g.stale
    FROM given AS g
    JOIN recorded AS d ON d.delivery_id = g.delivery_id
    WHERE g.outcome IS NOT NULL
)
SELECT delivery_id, ended FROM recorded
