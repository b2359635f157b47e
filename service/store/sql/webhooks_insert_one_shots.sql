-- Make hidden webhooks for one-shot URLs. One that another transaction made meanwhile is left out.
INSERT INTO webhooks (tenant_id, webhook_id, kind, lane, url, url_hash, origin)
SELECT n.tenant_id, n.webhook_id, 2, n.lane, n.url, n.url_hash, n.origin
FROM unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[], $5::bytea[], $6::text[])
    AS n (tenant_id, webhook_id, lane, url, url_hash, origin)
ORDER BY n.tenant_id, n.url_hash
ON CONFLICT (tenant_id, url_hash) WHERE kind = 2 AND deleted_at IS NULL DO NOTHING
