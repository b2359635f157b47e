-- Forget locked webhooks ($1) that are retired, or hidden with a mark from before $3, with what hangs on them (health
-- goes by its foreign key). One that something is queued for, that is in history, or that has sent anything since $2 stays.
WITH going AS (
    SELECT w.webhook_key
    FROM webhooks AS w
    WHERE
        w.webhook_key = ANY ($1::bigint[])
        AND (w.deleted_at < $2::timestamptz OR (w.deleted_at IS NULL AND w.kind = 2 AND w.idle_at < $3::timestamptz))
        AND (SELECT true FROM deliveries AS d WHERE d.webhook_key = w.webhook_key LIMIT 1) IS NULL
        AND (SELECT true FROM deliveries_done AS d WHERE d.webhook_key = w.webhook_key LIMIT 1) IS NULL
        AND (
            SELECT true FROM webhook_health AS h WHERE h.webhook_key = w.webhook_key AND h.updated_at >= $2::timestamptz
        ) IS NULL
),
trials AS (
    DELETE FROM replay_trials AS t WHERE t.webhook_key = ANY (ARRAY(SELECT webhook_key FROM going))
),
rollups AS (
    DELETE FROM attempt_rollups AS a WHERE a.webhook_key = ANY (ARRAY(SELECT webhook_key FROM going))
),
gone AS (
    DELETE FROM webhooks AS w WHERE w.webhook_key = ANY (ARRAY(SELECT webhook_key FROM going)) RETURNING w.webhook_key
)
SELECT count(*)::integer AS webhooks FROM gone
