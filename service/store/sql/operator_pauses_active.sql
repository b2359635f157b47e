-- What operators have paused.
SELECT scope, tenant_id, host FROM operator_pauses
