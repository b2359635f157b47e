-- What routing must know of tenants before it trusts its copy of their webhooks. now() is the transaction's instant.
SELECT k.tenant_id, coalesce(t.routing_version, 0) AS routing_version, t.signing_secrets IS NOT NULL AS has_secret
FROM unnest($1::text[]) AS k (tenant_id)
LEFT JOIN tenants AS t USING (tenant_id)
