-- What operators have paused.
SELECT scope, tenant_id, host FROM operator_pauses WHERE ended_at IS NULL
