-- Ordinary deliveries that were given up after a place in the order of (end, id).
SELECT
    d.delivery_id, d.tenant_id, d.webhook_id, w.origin, d.reason, d.finished_at, d.message_id,
    CASE WHEN d.scope = 0 THEN b.name END AS batch, d.job_id, d.attempts, d.last_error
FROM deliveries_done AS d
LEFT JOIN webhooks AS w ON w.webhook_key = d.webhook_key
LEFT JOIN batches AS b ON b.batch_key = d.batch_key
WHERE d.state = 5 AND d.reason = 'exhausted' AND d.extra IN (0, 2)
    AND d.finished_at >= $1 AND (d.finished_at, d.delivery_id) > ($1, $2::bigint)
ORDER BY d.finished_at, d.delivery_id
LIMIT $3
