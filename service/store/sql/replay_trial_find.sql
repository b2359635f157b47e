SELECT EXISTS (SELECT FROM replay_trials WHERE webhook_key = $1 AND request_hash = $2 AND made_at >= $3)
