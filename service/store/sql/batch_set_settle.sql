-- The settle window that the batch's registration asks for. A shorter one counts for a batch that waits already.
UPDATE batches
SET
    settle_seconds = $2::integer,
    settle_due_at = CASE WHEN settle_due_at IS NOT NULL AND $2::integer IS NOT NULL
        THEN least(settle_due_at, now() + make_interval(secs => $2::integer::double precision))
        ELSE settle_due_at END
WHERE batch_key = $1
