-- Disable webhooks that are enabled and still at the revision that was observed; the caller holds their locks. What
-- operational deliveries alone have shown is not told to subscribers.
UPDATE webhooks AS w
SET
    state = 2, state_reason = g.reason, state_detail = g.detail, state_at = now(), untold = g.untold,
    changed_at = now(), revision = w.revision + 1
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::boolean[])
    AS g (webhook_key, revision, reason, detail, untold)
WHERE w.webhook_key = g.webhook_key AND w.revision = g.revision AND w.state = 0 AND w.deleted_at IS NULL
RETURNING w.webhook_key
