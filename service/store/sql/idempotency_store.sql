-- Keep an answer; an expired one of the same scope makes room.
INSERT INTO idempotency (scope_hash, request_hash, tenant_id, status, answer, created_at)
VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (scope_hash) DO UPDATE
SET request_hash = excluded.request_hash, status = excluded.status, answer = excluded.answer,
    created_at = excluded.created_at
