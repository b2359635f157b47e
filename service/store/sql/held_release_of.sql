-- Let go what is held for one reason, of these webhooks. Returns how many.
WITH released AS (
    UPDATE deliveries AS d
    SET
        state = 0, reason = NULL, held_at = NULL, due_at = CASE WHEN d.waits_for IS NULL THEN now() END,
        first_due_at = d.first_due_at + greatest(now() - coalesce(d.held_at, now()), interval '0')
    WHERE d.webhook_key = ANY ($1::bigint[]) AND d.state = 2 AND d.reason = $2::text AND d.lease_token IS NULL
    RETURNING d.delivery_id
)
SELECT count(*)::integer FROM released
