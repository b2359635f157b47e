DELETE FROM operator_pauses
WHERE scope = $1 AND tenant_id IS NOT DISTINCT FROM $2 AND host IS NOT DISTINCT FROM $3
RETURNING pause_id, reason
