-- Delete operator pauses of a tenant.
WITH gone AS (
    DELETE FROM operator_pauses WHERE tenant_id = $1 RETURNING pause_id
)
SELECT count(*)::integer AS operator_pauses FROM gone
