-- The net under deliveries_wake_waiting: whoever waits for a delivery that is not on the wire any more is due. In the
-- order of the index of those that wait, which are few: by id, all of the queue would be walked every second.
UPDATE deliveries AS d
SET waits_for = NULL, due_at = CASE WHEN d.state < 2 THEN now() END
WHERE d.delivery_id IN (
    SELECT w.delivery_id
    FROM deliveries AS w
    WHERE
        w.waits_for IS NOT NULL
        AND (SELECT o.lease_token FROM deliveries AS o WHERE o.delivery_id = w.waits_for) IS NULL
    ORDER BY w.waits_for
    LIMIT $1::integer
    FOR UPDATE OF w SKIP LOCKED
)
RETURNING d.delivery_id
