-- Waiting deliveries start over, due now (held ones stay held); an attempt on the wire is flagged to start over unless
-- it succeeds. Returns how many.
WITH flagged AS (
    UPDATE deliveries SET flag = 4, flag_reason = NULL
    WHERE delivery_id = ANY ($1::bigint[]) AND lease_token IS NOT NULL AND flag = 0
    RETURNING delivery_id
),
refreshed AS (
    UPDATE deliveries
    SET
        state = CASE WHEN state = 1 THEN 0 ELSE state END,
        due_at = CASE WHEN state < 2 AND waits_for IS NULL THEN now() END,
        attempts_before = attempts, first_due_at = now(), resume_state = NULL, resume_reason = NULL, resume_due_at = NULL
    WHERE delivery_id = ANY ($1::bigint[]) AND lease_token IS NULL
    RETURNING delivery_id
)
SELECT (SELECT count(*) FROM flagged) + (SELECT count(*) FROM refreshed)
