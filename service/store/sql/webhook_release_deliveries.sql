-- Let held deliveries of a webhook go, due now; the time they were held does not count against their schedule.
WITH unflagged AS (
    UPDATE deliveries SET flag = 0, flag_reason = NULL
    WHERE webhook_key = $1 AND lease_token IS NOT NULL AND flag = 3
)
UPDATE deliveries
SET
    state = 0, reason = NULL, held_at = NULL, due_at = CASE WHEN waits_for IS NULL THEN now() END,
    first_due_at = first_due_at + greatest(now() - coalesce(held_at, now()), interval '0')
WHERE webhook_key = $1 AND state = 2 AND lease_token IS NULL AND reason = ANY ($2::text[])
