UPDATE replays SET state = $2, reason = $3, finished_at = now() WHERE replay_id = $1
