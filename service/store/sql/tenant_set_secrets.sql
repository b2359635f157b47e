UPDATE tenants SET signing_secrets = $2 WHERE tenant_id = $1
