-- Hold leased deliveries whose webhook is paused or disabled. The webhook is locked and looked at
-- again, so that an enable beside us either sees them held or keeps them from being held.
-- Returns the deliveries that are held; the others are handed back by the caller.
WITH stopped AS (
    SELECT w.webhook_key
    FROM (SELECT webhook_key, state FROM webhooks WHERE webhook_key = ANY ($4::bigint[]) ORDER BY webhook_key FOR SHARE) AS w
    WHERE w.state <> 0
)
UPDATE deliveries AS d
SET
    state = 2, reason = g.reason, held_at = now(), due_at = NULL, lease_token = NULL, lease_until = NULL
FROM unnest($1::bigint[], $2::bigint[], $3::text[]) AS g (delivery_id, token, reason)
WHERE
    d.delivery_id = g.delivery_id AND d.lease_token = g.token AND d.flag = 0
    AND EXISTS (SELECT FROM stopped AS s WHERE s.webhook_key = d.webhook_key)
RETURNING d.delivery_id
