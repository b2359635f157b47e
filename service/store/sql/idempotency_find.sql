SELECT request_hash, status, answer FROM idempotency WHERE scope_hash = $1 AND created_at > $2
