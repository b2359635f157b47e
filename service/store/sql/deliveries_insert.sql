-- Queue deliveries. A message has one delivery per webhook: one that is queued already is left as it is.
INSERT INTO deliveries (
    tenant_id, webhook_key, lane, message_id, body_at, type, scope, group_key, batch_key, job_id, generation, state,
    reason, held_at, due_at, waits_for, lease_token, lease_until, extra
)
SELECT
    n.tenant_id, n.webhook_key, n.lane, n.message_id, n.body_at, n.type, n.scope, n.group_key, n.batch_key, n.job_id,
    n.generation,
    CASE WHEN n.held IS NULL THEN 0 ELSE 2 END,
    n.held,
    CASE WHEN n.held IS NOT NULL THEN now() END,
    CASE WHEN n.held IS NULL AND n.waits_for IS NULL THEN now() END,
    n.waits_for,
    CASE WHEN n.held IS NULL AND n.waits_for IS NULL THEN n.lease_token END,
    CASE WHEN n.held IS NULL AND n.waits_for IS NULL THEN n.lease_until END,
    n.extra
FROM unnest($1::delivery_input[]) AS n
ON CONFLICT (message_id, webhook_key) DO NOTHING
RETURNING delivery_id, webhook_key, message_id, due_at IS NOT NULL AS due
