-- The live webhook that a delivery goes to, locked: the one it was made for, or, where that is gone or there was none,
-- the account webhook that has the id now.
SELECT w.webhook_key, w.lane, w.state
FROM (
    SELECT webhook_key, NULL::text AS webhook_id FROM deliveries WHERE delivery_id = $1 AND tenant_id = $2
    UNION ALL
    SELECT webhook_key, webhook_id FROM deliveries_done WHERE delivery_id = $1 AND tenant_id = $2
    LIMIT 1
) AS d
JOIN webhooks AS w ON w.webhook_key = coalesce(
    (SELECT o.webhook_key FROM webhooks AS o WHERE o.webhook_key = d.webhook_key AND o.deleted_at IS NULL),
    (
        SELECT o.webhook_key FROM webhooks AS o
        WHERE o.tenant_id = $2 AND o.webhook_id = d.webhook_id AND o.kind = 1 AND o.deleted_at IS NULL
    )
)
FOR SHARE OF w
