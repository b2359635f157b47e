-- The newest attempts of a delivery.
SELECT number, started_at, duration_ms, outcome, status, detail, flags, origin, excerpt, next_at, superfluous
FROM attempts
WHERE delivery_id = $1
ORDER BY started_at DESC, number DESC
LIMIT 200
