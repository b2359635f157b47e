-- Forget pauses that ended longer ago than any delivery waits.
DELETE FROM operator_pauses WHERE ended_at < now() - interval '100 days'
