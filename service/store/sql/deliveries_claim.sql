-- Lease due deliveries: of the lanes $1, from the instants $2 on, and of those with something due since $4; of each as
-- many as $5, a JSON object, says for it (0: none now, -1: one that is no attempt of the schedule), else $6. Only the
-- first $3 due since $4 are looked at. Nothing goes past what was due earlier: while an old transaction is open, entries
-- of deliveries that have long left cannot be removed from the index, and each costs a visit. The rows compared name the
-- lane and the instant, so that one index serves, whatever the statistics say. Claims do not see what others are taking: of
-- a group only the first is taken of those that are due, or may be for a claim that began a moment later, redeliveries
-- before others. At least one row comes back, without a delivery if nothing is due: lanes that were found, in the order in
-- which they were looked at, and whether there may be more.
WITH recent AS (
    SELECT d.lane
    FROM deliveries AS d
    WHERE d.lease_until IS NULL AND d.due_at >= to_timestamp($4::double precision) AND d.due_at <= now()
    ORDER BY d.due_at
    LIMIT $3::integer
),
asked AS (
    SELECT
        a.lane, to_timestamp(a.since) AS since, a.found, coalesce(($5::jsonb ->> a.lane::text)::integer, $6::integer) AS room
    FROM (
        SELECT n.lane, n.since, false
        FROM unnest($1::bigint[], $2::double precision[]) AS n (lane, since)
        UNION ALL
        SELECT r.lane, $4::double precision, true
        FROM (SELECT DISTINCT lane FROM recent) AS r
        WHERE r.lane <> ALL ($1::bigint[])
    ) AS a (lane, since, found)
),
picked AS (
    SELECT due.delivery_id
    FROM asked AS a
    CROSS JOIN LATERAL (
        SELECT d.delivery_id
        FROM deliveries AS d
        WHERE
            d.lease_token IS NULL AND d.due_at IS NOT NULL
            AND (d.lane, d.due_at) >= (a.lane, a.since) AND (d.lane, d.due_at) <= (a.lane, now())
            AND (a.room >= 0 OR d.extra = 1 OR d.resume_state IS NOT NULL)
            AND (
                d.group_key IS NULL OR (
                    SELECT o.delivery_id FROM deliveries AS o
                    WHERE
                        o.group_key = d.group_key AND o.webhook_key = d.webhook_key
                        AND (o.lease_token IS NOT NULL OR (
                            o.due_at <= now() + interval '1 second'
                            AND (o.resume_state IS NULL, o.delivery_id) < (d.resume_state IS NULL, d.delivery_id)
                        ))
                    LIMIT 1
                ) IS NULL
            )
        ORDER BY d.lane, d.due_at
        LIMIT abs(a.room)
        FOR UPDATE OF d SKIP LOCKED
    ) AS due
    LIMIT $7::integer
),
claimed AS (
    UPDATE deliveries AS d
    SET lease_token = $8::bigint, lease_until = now() + make_interval(secs => $9::double precision)
    WHERE d.delivery_id = ANY (ARRAY(SELECT p.delivery_id FROM picked AS p))
    RETURNING d.*
),
look AS (
    SELECT
        extract(EPOCH FROM now())::double precision AS at,
        ARRAY(SELECT a.lane FROM asked AS a WHERE a.found) AS found,
        (SELECT count(*) FROM recent) >= $3::integer AS cut
)
SELECT
    c.delivery_id, c.webhook_key, c.lane, c.tenant_id, c.message_id, c.type, c.generation, c.group_key, c.attempts,
    extract(EPOCH FROM c.created_at)::double precision AS created,
    extract(EPOCH FROM c.first_due_at)::double precision AS first_due,
    coalesce((SELECT w.revision FROM webhooks AS w WHERE w.webhook_key = c.webhook_key), 0) AS revision,
    b.body,
    b.trace,
    CASE WHEN c.extra > 0 OR c.flag <> 0 OR c.resume_state IS NOT NULL OR c.attempts_before > 0
        THEN json_build_object(
            'extra', c.extra, 'flag', c.flag, 'flag_reason', c.flag_reason, 'state', c.resume_state,
            'reason', c.resume_reason, 'attempts_before', c.attempts_before,
            'due', extract(EPOCH FROM c.resume_due_at)
        )
    END AS special,
    l.at, l.found, l.cut
FROM look AS l
LEFT JOIN claimed AS c ON true
LEFT JOIN LATERAL (
    SELECT m.body, m.trace
    FROM message_bodies AS m
    WHERE m.message_id = c.message_id AND m.body_at = c.body_at
    LIMIT 1
) AS b ON true
