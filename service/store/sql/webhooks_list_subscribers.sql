-- The account webhooks of some tenants, as routing needs them.
SELECT webhook_key, tenant_id, webhook_id, lane, state, event_types, scopes, batch_names
FROM webhooks
WHERE tenant_id = ANY($1::text[]) AND kind = 1 AND deleted_at IS NULL
