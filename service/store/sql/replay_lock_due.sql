-- The running replay that has waited longest for its next step.
SELECT replay_id, webhook_key, which, since, until, rate, phase, position
FROM replays
WHERE state = 'running' AND next_at <= now()
ORDER BY next_at
LIMIT 1
FOR UPDATE SKIP LOCKED
