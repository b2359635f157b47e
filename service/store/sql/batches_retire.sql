-- The end of an incarnation: its own registration is retired, and batch deliveries that are not finished are canceled;
-- one that is on the wire is flagged, so that anything but a success cancels it. A registration written after the
-- deletion happened belongs to the next incarnation ($2 is when) and is left for the caller. Returns for each incarnation
-- its registration and how many deliveries were canceled, then the registrations that are left.
WITH ended AS (
    SELECT * FROM unnest($1::bigint[], $2::timestamptz[]) AS e (batch_key, ended_at)
),
retired AS (
    UPDATE webhooks AS w
    SET deleted_at = now(), changed_at = now(), revision = w.revision + 1
    FROM ended AS e
    WHERE w.batch_key = e.batch_key AND w.kind = 0 AND w.deleted_at IS NULL AND w.written_at <= e.ended_at
    RETURNING w.batch_key, w.webhook_id
),
open AS (
    SELECT d.delivery_id, d.lease_token IS NOT NULL AS on_wire
    FROM ended AS e
    JOIN deliveries AS d ON d.group_key = e.batch_key
    ORDER BY d.delivery_id
    FOR UPDATE OF d
),
flagged AS (
    UPDATE deliveries AS d
    SET flag = 2, flag_reason = 'batch_deleted'
    FROM open AS o
    WHERE d.delivery_id = o.delivery_id AND o.on_wire
),
gone AS (
    DELETE FROM deliveries AS d
    USING open AS o
    WHERE d.delivery_id = o.delivery_id AND NOT o.on_wire
    RETURNING d.*
),
history AS (
    INSERT INTO deliveries_done (
        delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
        generation, state, reason, attempts, created_at, first_due_at, finished_at, extra, last_class, last_error
    )
    SELECT
        g.delivery_id, g.tenant_id, g.webhook_key, w.webhook_id, g.message_id, g.body_at, g.type, g.scope, g.group_key,
        g.batch_key, g.job_id, g.generation, CASE WHEN g.resume_state >= 4 THEN g.resume_state ELSE 7 END,
        CASE WHEN g.resume_state >= 4 THEN g.resume_reason ELSE 'batch_deleted' END, g.attempts, g.created_at,
        g.first_due_at, now(), g.extra, g.last_class, g.last_error
    FROM gone AS g
    JOIN webhooks AS w USING (webhook_key)
)
SELECT e.batch_key, NULL::bigint AS webhook_key, r.webhook_id, coalesce(c.canceled, 0) AS canceled
FROM ended AS e
LEFT JOIN retired AS r ON r.batch_key = e.batch_key
LEFT JOIN (
    SELECT g.group_key AS batch_key, count(*)::integer AS canceled FROM gone AS g GROUP BY g.group_key
) AS c ON c.batch_key = e.batch_key
UNION ALL
SELECT e.batch_key, w.webhook_key, NULL, 0
FROM ended AS e
JOIN webhooks AS w ON w.batch_key = e.batch_key AND w.kind = 0 AND w.deleted_at IS NULL AND w.written_at > e.ended_at
