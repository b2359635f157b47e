-- The newest delivery of each batch and job of a webhook, where it failed and none waits: among the last ten thousand.
SELECT n.delivery_id
FROM (
    SELECT DISTINCT ON (r.group_key) r.delivery_id, r.group_key, r.state
    FROM (
        SELECT delivery_id, group_key, generation, state
        FROM deliveries_done
        WHERE webhook_key = $1 AND group_key IS NOT NULL
        ORDER BY delivery_id DESC
        LIMIT 10000
    ) AS r
    ORDER BY r.group_key, r.generation DESC, r.delivery_id DESC
) AS n
WHERE
    n.state = 5
    AND NOT EXISTS (SELECT FROM deliveries AS d WHERE d.group_key = n.group_key AND d.webhook_key = $1)
ORDER BY n.delivery_id
