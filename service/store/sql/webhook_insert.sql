-- A registration; its lane is its own key.
INSERT INTO webhooks (
    webhook_key, lane, tenant_id, webhook_id, kind, batch_key, url, url_hash, origin, custom_headers, secrets, signing,
    description, settle_seconds, notify_if_done, retry_schedule, timeout_seconds, max_in_flight, rate_limit,
    event_types, scopes, batch_names, written_at
) OVERRIDING SYSTEM VALUE
SELECT
    k.key, k.key, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21
FROM nextval(pg_get_serial_sequence('webhooks', 'webhook_key')) AS k (key)
RETURNING webhook_key
