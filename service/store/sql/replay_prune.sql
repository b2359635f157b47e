-- Forget replays that ended before $1, and dry runs.
WITH trials AS (
    DELETE FROM replay_trials WHERE made_at < now() - interval '2 days'
)
DELETE FROM replays WHERE finished_at < $1
