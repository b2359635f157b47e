-- Redeliveries and tests of these lanes that became due more than $2 seconds ago are due anew, at most $3 of each: claims
-- find them in a lane whose webhook is not well only among what became due lately. The rows compared name no instant
-- alone, so that no other index serves.
UPDATE deliveries AS d
SET due_at = now()
WHERE d.delivery_id = ANY (ARRAY(
    SELECT passed.delivery_id
    FROM unnest($1::bigint[]) AS g (lane)
    CROSS JOIN LATERAL (
        SELECT o.delivery_id
        FROM deliveries AS o
        WHERE
            o.lease_until IS NULL AND (o.extra = 1 OR o.resume_state IS NOT NULL)
            AND (o.lane, o.due_at) >= (g.lane, '-infinity')
            AND (o.lane, o.due_at) < (g.lane, now() - make_interval(secs => $2::double precision))
        ORDER BY o.lane, o.due_at
        LIMIT $3::integer
        FOR UPDATE OF o SKIP LOCKED
    ) AS passed
))
