-- The own webhooks of some batches, whose rows the transaction has locked.
SELECT webhook_key, batch_key, webhook_id, lane, state
FROM webhooks
WHERE batch_key = ANY($1::bigint[]) AND kind = 0 AND deleted_at IS NULL
