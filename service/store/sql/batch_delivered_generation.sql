SELECT generation FROM batch_delivered WHERE batch_key = $1
