-- Incarnations whose settle window is over.
SELECT batch_key FROM batches WHERE settle_due_at <= now() ORDER BY settle_due_at LIMIT $1
