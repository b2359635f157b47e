-- Everything that sending to these webhooks needs.
SELECT
    w.webhook_key, w.webhook_id, w.tenant_id, w.kind, w.lane, w.state, w.revision, w.url, w.origin,
    w.custom_headers, w.secrets, t.signing_secrets, w.retry_schedule, w.timeout_seconds, w.max_in_flight, w.rate_limit,
    w.state_at, w.deleted_at IS NOT NULL AS deleted, h.health, h.held_until
FROM webhooks AS w
LEFT JOIN tenants AS t ON t.tenant_id = w.tenant_id
LEFT JOIN webhook_health AS h ON h.webhook_key = w.webhook_key
WHERE w.webhook_key = ANY ($1::bigint[])
