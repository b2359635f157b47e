SELECT signing_secrets FROM tenants WHERE tenant_id = $1
