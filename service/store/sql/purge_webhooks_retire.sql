-- Retire live webhooks of a tenant, as deleting them would, at most $2 at a time: nothing new goes to them.
WITH page AS (
    SELECT webhook_key
    FROM webhooks
    WHERE tenant_id = $1 AND deleted_at IS NULL
    ORDER BY webhook_key
    LIMIT $2::integer
    FOR UPDATE SKIP LOCKED
),
retired AS (
    UPDATE webhooks AS w
    SET deleted_at = now(), changed_at = clock_timestamp(), revision = w.revision + 1
    FROM page AS p
    WHERE w.webhook_key = p.webhook_key
    RETURNING w.webhook_key
)
SELECT count(*)::integer AS retired FROM retired
