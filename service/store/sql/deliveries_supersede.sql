-- Make room for newer deliveries of the same work: older ones of the same webhook that are not on the wire end as
-- superseded; one that is on the wire is flagged (unless it is to be canceled), so that the newer one can wait for it.
-- Returns both.
WITH newer AS (
    SELECT *
    FROM unnest($1::bigint[], $2::bigint[], $3::integer[], $4::text[]) AS n (group_key, webhook_key, generation, message_id)
),
older AS (
    SELECT d.delivery_id, d.group_key, d.webhook_key, d.lease_token IS NOT NULL AS on_wire
    FROM newer AS n
    JOIN deliveries AS d ON d.group_key = n.group_key AND d.webhook_key = n.webhook_key
    WHERE d.generation <= n.generation AND d.message_id <> n.message_id
    ORDER BY d.delivery_id
    FOR UPDATE OF d
),
flagged AS (
    UPDATE deliveries AS d
    SET flag = CASE d.flag WHEN 2 THEN 2 ELSE 1 END, flag_reason = CASE d.flag WHEN 2 THEN d.flag_reason END
    FROM older AS o
    WHERE d.delivery_id = o.delivery_id AND o.on_wire
    RETURNING d.delivery_id, d.group_key, d.webhook_key
),
ended AS (
    DELETE FROM deliveries AS d
    USING older AS o
    WHERE d.delivery_id = o.delivery_id AND NOT o.on_wire
    RETURNING d.*
),
history AS (
    INSERT INTO deliveries_done (
        delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
        generation, state, reason, attempts, created_at, first_due_at, finished_at, extra, last_class, last_error
    )
    SELECT
        e.delivery_id, e.tenant_id, e.webhook_key, w.webhook_id, e.message_id, e.body_at, e.type, e.scope, e.group_key,
        e.batch_key, e.job_id, e.generation, CASE WHEN e.resume_state >= 4 THEN e.resume_state ELSE 6 END,
        CASE WHEN e.resume_state >= 4 THEN e.resume_reason END, e.attempts, e.created_at, e.first_due_at, now(), e.extra,
        e.last_class, e.last_error
    FROM ended AS e
    JOIN webhooks AS w USING (webhook_key)
)
SELECT delivery_id, group_key, webhook_key, true AS on_wire FROM flagged
UNION ALL
SELECT delivery_id, group_key, webhook_key, false FROM ended
