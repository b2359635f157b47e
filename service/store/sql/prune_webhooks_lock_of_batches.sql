-- Lock the own webhooks of locked batches; one that somebody holds is left out, and with it its batch.
SELECT w.webhook_key
FROM webhooks AS w
WHERE w.batch_key = ANY ($1::bigint[]) AND w.kind = 0 AND w.deleted_at IS NULL
ORDER BY w.webhook_key
FOR UPDATE SKIP LOCKED
