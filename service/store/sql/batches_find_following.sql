-- The newest live incarnation of a name after one that ended, else the newest at all: has it a registration, and a finish
-- that none of its registrations has delivered?
SELECT
    b.batch_key, b.seq, b.ended_by, b.finish_message_id,
    EXISTS (
        SELECT FROM webhooks AS w WHERE w.batch_key = b.batch_key AND w.kind = 0 AND w.deleted_at IS NULL
    ) AS registered,
    b.finish > coalesce(d.generation, 0) AS untold
FROM batches AS b
LEFT JOIN batch_delivered AS d USING (batch_key)
WHERE b.tenant_id = $1 AND b.name = $2 AND b.seq > $3
ORDER BY b.ended_by IS NULL DESC, b.seq DESC
LIMIT 1
