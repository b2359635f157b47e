-- Remember that a dry run was made.
INSERT INTO replay_trials (webhook_key, request_hash, matched, made_at) VALUES ($1, $2, $3, $4)
ON CONFLICT (webhook_key, request_hash) DO UPDATE SET matched = excluded.matched, made_at = excluded.made_at
