-- Hidden webhooks of one-shot URLs, by (tenant, hash of the URL).
SELECT w.webhook_key, w.tenant_id, w.url_hash, w.webhook_id, w.lane, w.state, w.idle_at IS NOT NULL AS idle
FROM unnest($1::text[], $2::bytea[]) AS k (tenant_id, url_hash)
JOIN webhooks AS w ON w.tenant_id = k.tenant_id AND w.url_hash = k.url_hash
WHERE w.kind = 2 AND w.deleted_at IS NULL
