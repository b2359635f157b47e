-- Put newly sealed answers in the place of the old ones, where these still stand. Rows are locked in key order.
WITH given AS (
    SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS g (scope_hash, sealed, resealed)
),
locked AS (
    SELECT i.scope_hash, g.resealed
    FROM given AS g
    JOIN idempotency AS i ON i.scope_hash = g.scope_hash AND i.answer = g.sealed
    ORDER BY i.scope_hash
    FOR NO KEY UPDATE OF i
)
UPDATE idempotency AS i
SET answer = l.resealed
FROM locked AS l
WHERE i.scope_hash = l.scope_hash
RETURNING i.scope_hash
