SELECT FROM batches WHERE batch_key = $1 FOR UPDATE
