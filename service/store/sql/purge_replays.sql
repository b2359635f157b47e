-- Delete replays of a tenant, at most $2 at a time; one that takes a step at this moment is left for the next look.
WITH page AS (
    SELECT replay_id FROM replays WHERE tenant_id = $1 ORDER BY replay_id LIMIT $2::integer FOR UPDATE SKIP LOCKED
),
gone AS (
    DELETE FROM replays AS r USING page AS p WHERE r.replay_id = p.replay_id RETURNING r.replay_id
)
SELECT count(*)::integer AS replays FROM gone
