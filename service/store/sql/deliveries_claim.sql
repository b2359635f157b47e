-- Lease due deliveries: a few of each lane, lanes found by a loose index scan from a rotating cursor. Lanes that are
-- listed in $3, a JSON object, have their own room (0: none now). Sub-selects and ARRAY() keep every step on an index,
-- whatever the statistics say. One row comes back even if nothing is due: the scan's end, without a delivery.
WITH RECURSIVE visited (lane, position) AS (
    SELECT
        (
            SELECT d.lane FROM deliveries AS d
            WHERE d.lease_token IS NULL AND d.due_at IS NOT NULL AND d.lane > $1::bigint
            ORDER BY d.lane LIMIT 1
        ),
        1
    UNION ALL
    SELECT
        (
            SELECT d.lane FROM deliveries AS d
            WHERE d.lease_token IS NULL AND d.due_at IS NOT NULL AND d.lane > v.lane
            ORDER BY d.lane LIMIT 1
        ),
        v.position + 1
    FROM visited AS v
    WHERE v.lane IS NOT NULL AND v.position < $2::integer
),
picked AS (
    SELECT due.delivery_id
    FROM visited AS v
    CROSS JOIN LATERAL (
        SELECT d.delivery_id
        FROM deliveries AS d
        WHERE
            d.lane = v.lane AND d.lease_token IS NULL AND d.due_at <= now()
            AND (
                d.group_key IS NULL OR (
                    SELECT o.delivery_id FROM deliveries AS o
                    WHERE o.group_key = d.group_key AND o.webhook_key = d.webhook_key AND o.lease_token IS NOT NULL
                    LIMIT 1
                ) IS NULL
            )
        ORDER BY d.due_at
        LIMIT coalesce(($3::jsonb ->> v.lane::text)::integer, $4::integer)
        FOR UPDATE OF d SKIP LOCKED
    ) AS due
    WHERE v.lane IS NOT NULL
    LIMIT $5::integer
),
claimed AS (
    UPDATE deliveries AS d
    SET lease_token = $6::bigint, lease_until = now() + make_interval(secs => $7::double precision)
    WHERE d.delivery_id = ANY (ARRAY(SELECT p.delivery_id FROM picked AS p))
    RETURNING d.*
),
scan AS (
    -- Where to go on; null when the scan has come to the last lane.
    SELECT max(v.lane) FILTER (WHERE v.position = $2::integer) AS ends_at FROM visited AS v
)
SELECT
    c.delivery_id, c.webhook_key, c.lane, c.tenant_id, c.message_id, c.type, c.generation, c.group_key, c.attempts,
    extract(EPOCH FROM c.created_at)::double precision AS created,
    extract(EPOCH FROM c.first_due_at)::double precision AS first_due,
    coalesce((SELECT w.revision FROM webhooks AS w WHERE w.webhook_key = c.webhook_key), 0) AS revision,
    b.body,
    b.trace,
    CASE WHEN c.extra = 1 OR c.flag <> 0 OR c.resume_state IS NOT NULL OR c.attempts_before > 0
        THEN json_build_object(
            'extra', c.extra, 'flag', c.flag, 'flag_reason', c.flag_reason, 'state', c.resume_state,
            'reason', c.resume_reason, 'attempts_before', c.attempts_before,
            'due', extract(EPOCH FROM c.resume_due_at)
        )
    END AS special,
    s.ends_at
FROM scan AS s
LEFT JOIN claimed AS c ON true
LEFT JOIN LATERAL (
    SELECT m.body, m.trace
    FROM message_bodies AS m
    WHERE m.message_id = c.message_id AND m.body_at = c.body_at
    LIMIT 1
) AS b ON true
