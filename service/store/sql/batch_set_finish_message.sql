-- The newest finish goes by another message id from now on.
UPDATE batches SET finish_message_id = $2 WHERE batch_key = $1
