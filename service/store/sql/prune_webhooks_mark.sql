-- Mark locked hidden webhooks ($1) that nothing has used since $2 as idle, as of $3. Whoever uses one takes its mark off
-- first (``webhooks_wake``); those that looked before the mark have committed long before it is acted upon.
UPDATE webhooks AS w SET idle_at = $3::timestamptz
WHERE
    w.webhook_key = ANY ($1::bigint[]) AND w.kind = 2 AND w.deleted_at IS NULL
    AND (SELECT true FROM deliveries AS d WHERE d.webhook_key = w.webhook_key LIMIT 1) IS NULL
    AND (SELECT true FROM deliveries_done AS d WHERE d.webhook_key = w.webhook_key LIMIT 1) IS NULL
    AND (
        SELECT true FROM webhook_health AS h WHERE h.webhook_key = w.webhook_key AND h.updated_at >= $2::timestamptz
    ) IS NULL
