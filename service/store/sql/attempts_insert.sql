-- Log attempts whose lease was lost before they could be recorded: their deliveries stay as they are.
INSERT INTO attempts (
    delivery_id, number, started_at, webhook_key, duration_ms, outcome, status, detail, flags, origin, excerpt,
    superfluous
)
SELECT
    g.delivery_id, g.number, to_timestamp(g.started), g.webhook_key, g.duration_ms, g.outcome, g.status, g.detail,
    string_to_array(g.flags, ','), g.origin, g.excerpt, true
FROM unnest(
    $1::bigint[], $2::integer[], $3::double precision[], $4::bigint[], $5::integer[], $6::text[], $7::smallint[],
    $8::text[], $9::text[], $10::text[], $11::bytea[]
) AS g (delivery_id, number, started, webhook_key, duration_ms, outcome, status, detail, flags, origin, excerpt)
