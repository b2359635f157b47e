-- Put newly sealed URLs in the place of the old ones, where these still stand. What the webhook is does not change, so its
-- revision stays. Rows are locked in key order.
WITH given AS (
    SELECT * FROM unnest($1::bigint[], $2::bytea[], $3::bytea[]) AS g (webhook_key, sealed, resealed)
),
locked AS (
    SELECT w.webhook_key, g.resealed
    FROM given AS g
    JOIN webhooks AS w ON w.webhook_key = g.webhook_key AND w.url = g.sealed
    ORDER BY w.webhook_key
    FOR NO KEY UPDATE OF w
)
UPDATE webhooks AS w
SET url = l.resealed
FROM locked AS l
WHERE w.webhook_key = l.webhook_key
RETURNING w.webhook_key
