-- Forget answers older than $1, at most ten thousand at a time.
DELETE FROM idempotency
WHERE scope_hash IN (SELECT scope_hash FROM idempotency WHERE created_at < $1 ORDER BY created_at LIMIT 10000)
