-- Put newly sealed default secrets in the place of the old ones, where these still stand. Rows are locked in key order.
WITH given AS (
    SELECT * FROM unnest($1::text[], $2::bytea[], $3::bytea[]) AS g (tenant_id, sealed, resealed)
),
locked AS (
    SELECT t.tenant_id, g.resealed
    FROM given AS g
    JOIN tenants AS t ON t.tenant_id = g.tenant_id AND t.signing_secrets = g.sealed
    ORDER BY t.tenant_id
    FOR NO KEY UPDATE OF t
)
UPDATE tenants AS t
SET signing_secrets = l.resealed
FROM locked AS l
WHERE t.tenant_id = l.tenant_id
RETURNING t.tenant_id
