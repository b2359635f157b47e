-- Spread new deliveries over time, $2 a second.
UPDATE deliveries AS d
SET
    due_at = now() + make_interval(secs => (p.place - 1)::double precision / $2::integer),
    first_due_at = now() + make_interval(secs => (p.place - 1)::double precision / $2::integer)
FROM unnest($1::bigint[]) WITH ORDINALITY AS p (delivery_id, place)
WHERE d.delivery_id = p.delivery_id AND d.lease_token IS NULL AND d.due_at IS NOT NULL
