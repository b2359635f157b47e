SELECT * FROM batches WHERE batch_key = ANY ($1::bigint[])
