-- Lock webhooks; one that somebody holds is left for the next pass.
SELECT w.webhook_key
FROM webhooks AS w
WHERE w.webhook_key = ANY ($1::bigint[])
ORDER BY w.webhook_key
FOR UPDATE SKIP LOCKED
