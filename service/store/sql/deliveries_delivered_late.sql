-- A 2xx that came after its delivery had left the queue: whatever it ended as, it is delivered.
WITH given AS (
    SELECT *
    FROM unnest(
        $1::bigint[], $2::integer[], $3::double precision[], $4::integer[], $5::smallint[], $6::text[], $7::text[],
        $8::bytea[]
    ) AS g (delivery_id, number, started, duration_ms, status, flags, origin, excerpt)
),
settled AS (
    UPDATE deliveries_done AS d
    SET state = 4, reason = NULL, last_class = 'delivered', last_error = NULL
    FROM given AS g
    WHERE d.delivery_id = g.delivery_id AND d.state <> 4
    RETURNING d.delivery_id, d.batch_key, d.webhook_key, d.scope, d.generation
),
logged AS (
    INSERT INTO attempts (
        delivery_id, number, started_at, webhook_key, duration_ms, outcome, status, flags, origin, excerpt, superfluous
    )
    SELECT
        g.delivery_id, g.number, to_timestamp(g.started), d.webhook_key, g.duration_ms, 'delivered', g.status,
        string_to_array(g.flags, ','), g.origin, g.excerpt, true
    FROM given AS g
    JOIN deliveries_done AS d ON d.delivery_id = g.delivery_id
    WHERE d.webhook_key IS NOT NULL
),
accepted AS (
    INSERT INTO batch_delivered AS b (batch_key, generation)
    SELECT d.batch_key, max(d.generation)
    FROM settled AS d
    JOIN webhooks AS w ON w.webhook_key = d.webhook_key
    WHERE d.scope = 0 AND w.kind = 0 AND d.batch_key IS NOT NULL
    GROUP BY d.batch_key
    ORDER BY d.batch_key
    ON CONFLICT (batch_key) DO UPDATE SET generation = excluded.generation WHERE b.generation < excluded.generation
)
SELECT delivery_id FROM settled
