-- Health of the webhooks that are not simply well, and of those that we believe are not.
SELECT h.webhook_key, h.health, h.held_until
FROM webhook_health AS h
WHERE h.breaker <> 0
UNION
SELECT h.webhook_key, h.health, h.held_until
FROM webhook_health AS h
WHERE h.held_until IS NOT NULL
UNION
SELECT h.webhook_key, h.health, h.held_until
FROM webhook_health AS h
WHERE h.webhook_key = ANY ($1::bigint[])
