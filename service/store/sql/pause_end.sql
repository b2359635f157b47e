-- End a pause; the row stays for a while, since its time does not count on the clocks of what it named.
UPDATE operator_pauses
SET ended_at = now()
WHERE scope = $1 AND tenant_id IS NOT DISTINCT FROM $2 AND host IS NOT DISTINCT FROM $3 AND ended_at IS NULL
RETURNING reason
