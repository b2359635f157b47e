-- Disable webhooks that are enabled and still at the revision that was observed; the caller holds their locks.
UPDATE webhooks AS w
SET
    state = 2, state_reason = g.reason, state_detail = g.detail, state_at = now(), changed_at = now(),
    revision = w.revision + 1
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[]) AS g (webhook_key, revision, reason, detail)
WHERE w.webhook_key = g.webhook_key AND w.revision = g.revision AND w.state = 0 AND w.deleted_at IS NULL
RETURNING w.webhook_key
