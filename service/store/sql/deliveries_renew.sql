-- Renew the leases of buffered deliveries that nobody has flagged; returns those that are still ours.
UPDATE deliveries AS d
SET lease_until = now() + make_interval(secs => $3::double precision)
FROM unnest($1::bigint[], $2::bigint[]) AS g (delivery_id, token)
WHERE d.delivery_id = g.delivery_id AND d.lease_token = g.token AND d.flag = 0
RETURNING d.delivery_id
