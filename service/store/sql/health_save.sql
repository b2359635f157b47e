-- Write how webhooks fare. What is null of the last three stays as it was. Other processes look for what was written
-- lately, and a transaction that waited for locks began long ago: hence the clock of the statement.
UPDATE webhook_health AS h
SET
    health = g.health,
    held_until = to_timestamp(g.held_until),
    breaker = g.breaker,
    probe_at = to_timestamp(g.probe_at),
    last_success_at = coalesce(to_timestamp(g.last_success), h.last_success_at),
    last_failure_at = coalesce(to_timestamp(g.last_failure), h.last_failure_at),
    last_error = coalesce(g.last_error, h.last_error),
    updated_at = clock_timestamp()
FROM unnest(
    $1::bigint[], $2::bytea[], $3::double precision[], $4::smallint[], $5::double precision[], $6::double precision[],
    $7::double precision[], $8::text[]
) AS g (webhook_key, health, held_until, breaker, probe_at, last_success, last_failure, last_error)
WHERE h.webhook_key = g.webhook_key
