-- Health of the webhooks that are not simply well, and of those that we believe are not, where it was written in the
-- last $2 seconds (null: whenever). No index on updated_at: it would make every write of health a write of indexes.
WITH since (updated_at) AS (
    SELECT coalesce(now() - make_interval(secs => $2::double precision), '-infinity')
)
SELECT h.webhook_key, h.health, h.held_until
FROM webhook_health AS h
WHERE h.breaker <> 0 AND h.updated_at >= (SELECT s.updated_at FROM since AS s)
UNION
SELECT h.webhook_key, h.health, h.held_until
FROM webhook_health AS h
WHERE h.held_until IS NOT NULL AND h.updated_at >= (SELECT s.updated_at FROM since AS s)
UNION
SELECT h.webhook_key, h.health, h.held_until
FROM webhook_health AS h
WHERE h.webhook_key = ANY ($1::bigint[]) AND h.updated_at >= (SELECT s.updated_at FROM since AS s)
