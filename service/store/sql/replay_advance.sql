-- Remember how far a replay is, and when its next step is due.
UPDATE replays
SET
    phase = $2, position = $3, scanned = scanned + $4, queued = queued + $5, skipped = skipped + $4 - $5,
    next_at = now() + make_interval(secs => $6::double precision)
WHERE replay_id = $1
