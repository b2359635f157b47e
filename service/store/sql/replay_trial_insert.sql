-- Remember that a dry run was made.
INSERT INTO replay_trials (webhook_key, request_hash, made_at) VALUES ($1, $2, $3)
ON CONFLICT (webhook_key, request_hash) DO UPDATE SET made_at = excluded.made_at
