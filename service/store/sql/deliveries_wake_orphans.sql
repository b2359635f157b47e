-- The net under deliveries_wake_waiting: whoever waits for a delivery that is not on the wire any more is due.
UPDATE deliveries AS d
SET waits_for = NULL, due_at = CASE WHEN d.state < 2 THEN now() END
WHERE d.delivery_id IN (
    SELECT w.delivery_id
    FROM deliveries AS w
    WHERE
        w.waits_for IS NOT NULL
        AND NOT EXISTS (SELECT FROM deliveries AS o WHERE o.delivery_id = w.waits_for AND o.lease_token IS NOT NULL)
    ORDER BY w.delivery_id
    LIMIT $1::integer
    FOR UPDATE OF w SKIP LOCKED
)
RETURNING d.delivery_id
