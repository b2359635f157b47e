-- Deliveries whose <column> is one of $1, older than $2, newest first: queue ($4) and history ($5) as one list.
-- At most $3 rows are looked at; those that fit $7 to $12 come back, with how far the look went in every row, and in
-- one without a delivery if none fits.
WITH found AS (
    SELECT
        d.delivery_id, d.webhook_key, NULL::text AS webhook_id, d.message_id, d.type, d.scope, d.batch_key, d.job_id,
        d.generation, d.state, d.reason, d.attempts, d.created_at, d.due_at, NULL::timestamptz AS finished_at, d.extra,
        d.last_class, d.last_error, d.lease_token IS NOT NULL AS on_wire
    FROM unnest($1::<type>[]) AS k (key)
    CROSS JOIN LATERAL (
        SELECT * FROM deliveries AS o
        WHERE o.<column> = k.key AND o.delivery_id < $2::bigint AND $4::boolean
        ORDER BY o.delivery_id DESC
        LIMIT $3::integer
    ) AS d
    WHERE d.tenant_id = $6
    UNION ALL
    SELECT
        d.delivery_id, d.webhook_key, d.webhook_id, d.message_id, d.type, d.scope, d.batch_key, d.job_id,
        d.generation, d.state, d.reason, d.attempts, d.created_at, NULL, d.finished_at, d.extra, d.last_class,
        d.last_error, false
    FROM unnest($1::<type>[]) AS k (key)
    CROSS JOIN LATERAL (
        SELECT * FROM deliveries_done AS o
        WHERE o.<column> = k.key AND o.delivery_id < $2::bigint AND $5::boolean
        ORDER BY o.delivery_id DESC
        LIMIT $3::integer
    ) AS d
    WHERE d.tenant_id = $6
    ORDER BY delivery_id DESC
    LIMIT $3::integer
),
scan AS (
    SELECT
        count(*)::integer AS scanned, min(delivery_id) AS last_id,
        (SELECT created_at FROM found ORDER BY delivery_id LIMIT 1) AS last_created_at
    FROM found
),
fitting AS (
    SELECT f.*, coalesce(f.webhook_id, w.webhook_id) AS shown_id, b.name AS batch_name, b.incarnation_id
    FROM found AS f
    LEFT JOIN webhooks AS w ON w.webhook_key = f.webhook_key
    LEFT JOIN batches AS b ON b.batch_key = f.batch_key
    WHERE
        ($7::smallint IS NULL OR (f.state = $7 AND NOT f.on_wire) OR ($7 = 3 AND f.on_wire))
        AND ($8::text IS NULL OR f.type = $8)
        AND ($9::timestamptz IS NULL OR f.created_at >= $9)
        AND ($10::timestamptz IS NULL OR f.created_at < $10)
        AND ($11::text IS NULL OR coalesce(f.webhook_id, w.webhook_id) = $11)
        AND ($12::text IS NULL OR (f.scope = 0 AND b.name = $12))
    ORDER BY f.delivery_id DESC
    LIMIT $13::integer
)
SELECT
    s.scanned, s.last_id, s.last_created_at,
    f.delivery_id, f.webhook_key, f.shown_id AS webhook_id, f.message_id, f.type, f.scope, f.job_id, f.generation, f.state,
    f.reason, f.attempts, f.created_at, f.due_at, f.finished_at, f.extra, f.last_class, f.last_error, f.on_wire,
    f.batch_name, f.incarnation_id
FROM scan AS s
LEFT JOIN fitting AS f ON true
ORDER BY f.delivery_id DESC
