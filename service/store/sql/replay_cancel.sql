-- Stop a replay; one that has ended stays as it is.
UPDATE replays
SET
    state = CASE WHEN state = 'running' THEN 'canceled' ELSE state END,
    finished_at = coalesce(finished_at, now())
WHERE replay_id = $1 AND tenant_id = $2
RETURNING replay_id, webhook_id, which, since, until, rate, state, reason, scanned, queued, skipped, created_at, finished_at
