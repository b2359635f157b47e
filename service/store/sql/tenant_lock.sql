-- Make sure that a tenant has a row, and lock it: registrations of one tenant go one after the other.
INSERT INTO tenants AS t (tenant_id) VALUES ($1)
ON CONFLICT (tenant_id) DO UPDATE SET routing_version = t.routing_version
RETURNING signing_secrets
