UPDATE batches SET reconciled_at = now() WHERE batch_key = $1
