-- A webhook has another URL: what waits for it starts over, due now (held ones stay held); an attempt on the wire is
-- flagged, so that anything but a success starts over too. Redeliveries of finished deliveries just go there.
WITH flagged AS (
    UPDATE deliveries SET flag = 4, flag_reason = NULL
    WHERE webhook_key = $1 AND lease_token IS NOT NULL AND flag = 0 AND coalesce(resume_state, 0) < 4 AND extra <> 1
)
UPDATE deliveries
SET
    state = CASE WHEN state = 1 THEN 0 ELSE state END,
    reason = CASE WHEN state = 2 THEN reason END,
    due_at = CASE WHEN state < 2 AND waits_for IS NULL THEN now() END,
    attempts_before = attempts, first_due_at = now(), resume_state = NULL, resume_reason = NULL, resume_due_at = NULL,
    last_class = NULL, last_error = NULL
WHERE webhook_key = $1 AND lease_token IS NULL AND coalesce(resume_state, 0) < 4 AND extra <> 1
