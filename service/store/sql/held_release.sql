-- The net under enabling: let go what is held though its reason is gone (its webhook is enabled, its tenant has a
-- default secret), some deliveries of each webhook. Returns how many.
WITH RECURSIVE keys (webhook_key) AS (
    (SELECT d.webhook_key FROM deliveries AS d WHERE d.state = 2 ORDER BY d.webhook_key LIMIT 1)
    UNION ALL
    SELECT
        (
            SELECT d.webhook_key FROM deliveries AS d
            WHERE d.state = 2 AND d.webhook_key > k.webhook_key
            ORDER BY d.webhook_key LIMIT 1
        )
    FROM keys AS k
    WHERE k.webhook_key IS NOT NULL
),
chosen AS (
    SELECT d.delivery_id
    FROM keys AS k
    JOIN webhooks AS w ON w.webhook_key = k.webhook_key AND w.state = 0 AND w.deleted_at IS NULL
    LEFT JOIN tenants AS t ON t.tenant_id = w.tenant_id
    CROSS JOIN LATERAL (
        SELECT o.delivery_id
        FROM deliveries AS o
        WHERE
            o.webhook_key = k.webhook_key AND o.state = 2 AND o.lease_token IS NULL
            AND (
                o.reason IN ('paused', 'disabled')
                OR (o.reason = 'no_signing_key' AND t.signing_secrets IS NOT NULL)
            )
        LIMIT $1::integer
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS d
),
released AS (
    UPDATE deliveries AS d
    SET
        state = 0, reason = NULL, held_at = NULL, due_at = CASE WHEN d.waits_for IS NULL THEN now() END,
        first_due_at = d.first_due_at + greatest(now() - coalesce(d.held_at, now()), interval '0')
    FROM chosen AS c
    WHERE d.delivery_id = c.delivery_id
    RETURNING d.delivery_id
)
SELECT count(*)::integer FROM released
