-- Delete retired webhooks of a tenant with what hangs on them, at most $2 at a time; one that a queued delivery goes to is
-- left. Attempts whose delivery was deleted before they were recorded are found by their time.
WITH page AS (
    SELECT w.webhook_key
    FROM webhooks AS w
    WHERE
        w.tenant_id = $1 AND w.deleted_at IS NOT NULL
        AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.webhook_key = w.webhook_key)
    ORDER BY w.webhook_key
    LIMIT $2::integer
    FOR UPDATE OF w SKIP LOCKED
),
health AS (
    DELETE FROM webhook_health AS h USING page AS p WHERE h.webhook_key = p.webhook_key RETURNING h.webhook_key
),
trials AS (
    DELETE FROM replay_trials AS t USING page AS p WHERE t.webhook_key = p.webhook_key RETURNING t.webhook_key
),
rollups AS (
    DELETE FROM attempt_rollups AS r USING page AS p WHERE r.webhook_key = p.webhook_key RETURNING r.webhook_key
),
tried AS (
    DELETE FROM attempts AS a
    USING page AS p
    WHERE a.webhook_key = p.webhook_key AND a.started_at > now() - interval '10 minutes'
    RETURNING a.webhook_key
),
gone AS (
    DELETE FROM webhooks AS w USING page AS p WHERE w.webhook_key = p.webhook_key RETURNING w.webhook_key
)
SELECT
    (SELECT count(*) FROM gone)::integer AS webhooks,
    (SELECT count(*) FROM health)::integer AS webhook_health,
    (SELECT count(*) FROM trials)::integer AS replay_trials,
    (SELECT count(*) FROM rollups)::integer AS attempt_rollups,
    (SELECT count(*) FROM tried)::integer AS attempts
