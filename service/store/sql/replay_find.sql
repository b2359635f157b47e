SELECT replay_id, webhook_id, which, since, until, rate, state, reason, scanned, queued, skipped, created_at, finished_at
FROM replays
WHERE replay_id = $1 AND tenant_id = $2
