SELECT * FROM batches WHERE batch_key = $1
