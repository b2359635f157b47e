-- Of what is due of these works, $1 with the webhooks $2, the delivery that claims take first is due anew: those that found
-- another one on the wire have passed it by, and look no further back than a few seconds.
UPDATE deliveries AS d
SET due_at = now()
WHERE d.delivery_id = ANY (ARRAY(
    SELECT next.delivery_id
    FROM unnest($1::bigint[], $2::bigint[]) AS g (group_key, webhook_key)
    CROSS JOIN LATERAL (
        SELECT o.delivery_id
        FROM deliveries AS o
        WHERE o.group_key = g.group_key AND o.webhook_key = g.webhook_key AND o.lease_token IS NULL AND o.due_at < now()
        ORDER BY o.resume_state IS NULL, o.delivery_id
        LIMIT 1
        FOR UPDATE OF o SKIP LOCKED
    ) AS next
))
RETURNING d.delivery_id
