-- Start a replay, unless one to this webhook is running.
INSERT INTO replays (tenant_id, webhook_key, webhook_id, which, since, until, rate, phase, created_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (webhook_key) WHERE state = 'running' DO NOTHING
RETURNING replay_id, webhook_id, which, since, until, rate, state, reason, scanned, queued, skipped, created_at, finished_at
