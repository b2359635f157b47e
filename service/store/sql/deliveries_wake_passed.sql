-- What is due of these works, $1 with the webhooks $2, is due anew: claims that found another delivery of its work on the
-- wire have passed it by, and look no further back than a few seconds.
UPDATE deliveries AS d
SET due_at = now()
WHERE d.delivery_id = ANY (ARRAY(
    SELECT o.delivery_id
    FROM unnest($1::bigint[], $2::bigint[]) AS g (group_key, webhook_key)
    JOIN deliveries AS o ON o.group_key = g.group_key AND o.webhook_key = g.webhook_key
    WHERE o.lease_token IS NULL AND o.due_at < now()
    FOR UPDATE OF o SKIP LOCKED
))
RETURNING d.delivery_id
