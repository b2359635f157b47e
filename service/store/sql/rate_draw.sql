-- Draw attempts from the token buckets of webhooks with a rate limit, as many of those wanted as there are. A bucket
-- holds a second's worth. Buckets that another process draws from at this moment are left for the next time.
WITH given AS (
    SELECT g.webhook_key, g.wanted, w.rate_limit::double precision AS rate
    FROM unnest($1::bigint[], $2::integer[]) AS g (webhook_key, wanted)
    JOIN webhooks AS w ON w.webhook_key = g.webhook_key
    WHERE w.rate_limit IS NOT NULL
),
bucket AS (
    SELECT
        h.webhook_key, g.wanted,
        least(
            g.rate,
            coalesce(h.rate_tokens, g.rate)
            + g.rate * greatest(0, extract(EPOCH FROM clock_timestamp() - coalesce(h.rate_at, clock_timestamp())))
        ) AS tokens
    FROM given AS g
    JOIN webhook_health AS h ON h.webhook_key = g.webhook_key
    ORDER BY h.webhook_key
    FOR NO KEY UPDATE OF h SKIP LOCKED
)
UPDATE webhook_health AS h
SET rate_tokens = b.tokens - least(b.wanted, floor(b.tokens)), rate_at = clock_timestamp()
FROM bucket AS b
WHERE h.webhook_key = b.webhook_key
RETURNING h.webhook_key, least(b.wanted, floor(b.tokens))::integer AS granted
