-- Roll up the attempts that started between the last time and $3 ago, an hour at most. True if more is left.
WITH progress AS (
    SELECT rolled_until FROM rollup_progress FOR UPDATE
),
span AS (
    SELECT
        coalesce((SELECT rolled_until FROM progress), now() - interval '1 hour') AS since,
        least(
            now() - $3::interval,
            coalesce((SELECT rolled_until FROM progress), now() - interval '1 hour') + interval '1 hour'
        ) AS until
),
rolled AS (
    INSERT INTO attempt_rollups AS r (webhook_key, bucket_at, outcome, attempts, duration_ms, histogram)
    SELECT
        c.webhook_key, c.bucket_at, c.outcome, sum(c.attempts), sum(c.duration_ms),
        ARRAY(
            SELECT coalesce(sum(f.attempts) FILTER (WHERE f.place = i), 0)::integer
            FROM generate_series(0, cardinality($1::integer[])) AS i
            CROSS JOIN unnest(array_agg(c.place), array_agg(c.attempts)) AS f (place, attempts)
            GROUP BY i
            ORDER BY i
        )
    FROM (
        SELECT
            a.webhook_key, date_bin($2::interval, a.started_at, timestamptz '2000-01-01 00:00:00Z') AS bucket_at,
            a.outcome, width_bucket(a.duration_ms - 1, $1::integer[]) AS place, count(*)::integer AS attempts,
            sum(a.duration_ms)::bigint AS duration_ms
        FROM attempts AS a
        CROSS JOIN span AS s
        WHERE a.started_at >= s.since AND a.started_at < s.until
        GROUP BY 1, 2, 3, 4
    ) AS c
    GROUP BY c.webhook_key, c.bucket_at, c.outcome
    ON CONFLICT (webhook_key, bucket_at, outcome) DO UPDATE
    SET
        attempts = r.attempts + excluded.attempts, duration_ms = r.duration_ms + excluded.duration_ms,
        histogram = ARRAY(
            SELECT o.a + o.b FROM unnest(r.histogram, excluded.histogram) WITH ORDINALITY AS o (a, b, i) ORDER BY o.i
        )
)
INSERT INTO rollup_progress AS p (singleton, rolled_until)
SELECT true, s.until FROM span AS s WHERE s.until > s.since
ON CONFLICT (singleton) DO UPDATE SET rolled_until = excluded.rolled_until
RETURNING rolled_until < now() - $3::interval
