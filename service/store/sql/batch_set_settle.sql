-- The settle window that the batch's registration asks for, and when it is over for a batch that waits already.
UPDATE batches SET settle_seconds = $2::integer, settle_due_at = $3 WHERE batch_key = $1
