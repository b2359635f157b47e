-- One extra attempt now; if it fails, state, reason and due time are as they were.
UPDATE deliveries
SET resume_state = state, resume_reason = reason, resume_due_at = due_at, due_at = now()
WHERE delivery_id = $1 AND lease_token IS NULL AND resume_state IS NULL
