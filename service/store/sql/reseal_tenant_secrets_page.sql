-- The next $2 tenants with a default secret.
SELECT tenant_id AS key, tenant_id, '' AS name, signing_secrets AS sealed
FROM tenants
WHERE tenant_id > $1::text AND signing_secrets IS NOT NULL
ORDER BY tenant_id
LIMIT $2::integer
