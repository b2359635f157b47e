-- Forget entries older than $1, at most ten thousand at a time.
DELETE FROM audit_log WHERE audit_id IN (SELECT audit_id FROM audit_log WHERE at < $1 ORDER BY at LIMIT 10000)
