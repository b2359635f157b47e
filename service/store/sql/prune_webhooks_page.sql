-- The next $2 webhooks after a key, oldest first: whether each was there before $3 tells where the walk may stop. What is
-- asked of each: ``retired`` before $3; ``idle``, a hidden one that is not paused and whose mark is from before $4;
-- ``unmarked``, one that has no mark yet.
SELECT
    w.webhook_key,
    w.created_at < $3::timestamptz AS old,
    coalesce(w.deleted_at < $3::timestamptz, false) AS retired,
    w.kind = 2 AND w.deleted_at IS NULL AND w.state <> 1 AND coalesce(w.idle_at < $4::timestamptz, false) AS idle,
    w.kind = 2 AND w.deleted_at IS NULL AND w.state <> 1 AND w.idle_at IS NULL AND w.created_at < $3::timestamptz AS unmarked
FROM webhooks AS w
WHERE w.webhook_key > $1::bigint
ORDER BY w.webhook_key
LIMIT $2::integer
