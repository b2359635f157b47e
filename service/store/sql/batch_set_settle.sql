-- The settle window that the batch's registration asks for.
UPDATE batches SET settle_seconds = $2 WHERE batch_key = $1
