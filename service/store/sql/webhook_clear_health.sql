-- Forget how a webhook fared; with $4 the last success and error too (another receiver).
INSERT INTO webhook_health AS h (webhook_key, health, breaker)
VALUES ($1, $2, $3)
ON CONFLICT (webhook_key) DO UPDATE
SET
    health = excluded.health, breaker = excluded.breaker, probe_at = NULL, held_until = NULL,
    last_success_at = CASE WHEN $4::boolean THEN NULL ELSE h.last_success_at END,
    last_failure_at = CASE WHEN $4::boolean THEN NULL ELSE h.last_failure_at END,
    last_error = CASE WHEN $4::boolean THEN NULL ELSE h.last_error END,
    updated_at = clock_timestamp()
