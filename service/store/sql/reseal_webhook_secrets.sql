-- Put newly sealed secrets in the place of the old ones, where these still stand; see reseal_webhook_urls.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS g (webhook_key, sealed, resealed)
),
locked AS (
    SELECT w.webhook_key, g.resealed
    FROM given AS g
    JOIN webhooks AS w ON w.webhook_key = g.webhook_key AND w.secrets = g.sealed
    ORDER BY w.webhook_key
    FOR NO KEY UPDATE OF w
)
UPDATE webhooks AS w
SET secrets = l.resealed
FROM locked AS l
WHERE w.webhook_key = l.webhook_key
RETURNING w.webhook_key
