-- Hold a live webhook until the transaction ends: something is about to be queued for it.
SELECT w.webhook_key FROM webhooks AS w WHERE w.webhook_key = $1 AND w.deleted_at IS NULL FOR SHARE
