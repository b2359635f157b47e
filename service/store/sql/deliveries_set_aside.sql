-- Move what is due of the webhooks $3 out of the lane $1, from the instant $2 on, into lanes of their own, due as it was:
-- only the first $4 of the lane are looked at. What is no attempt of the schedule stays, since nothing holds it up.
UPDATE deliveries AS d
SET lane = d.webhook_key
WHERE d.delivery_id = ANY (ARRAY(
    SELECT o.delivery_id
    FROM (
        SELECT f.delivery_id
        FROM deliveries AS f
        WHERE
            f.lease_token IS NULL AND f.due_at IS NOT NULL
            AND (f.lane, f.due_at) >= ($1::bigint, to_timestamp($2::double precision)) AND (f.lane, f.due_at) <= ($1, now())
        ORDER BY f.lane, f.due_at
        LIMIT $4::integer
    ) AS first
    JOIN deliveries AS o USING (delivery_id)
    WHERE o.webhook_key = ANY ($3::bigint[]) AND o.lease_token IS NULL AND o.extra <> 1 AND o.resume_state IS NULL
    FOR UPDATE OF o SKIP LOCKED
))
