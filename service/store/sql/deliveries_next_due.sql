-- Seconds until the next delivery becomes due that is not due yet; null when there is none.
SELECT extract(EPOCH FROM d.due_at - clock_timestamp())::double precision AS wait
FROM deliveries AS d
WHERE d.lease_until IS NULL AND d.due_at > now()
ORDER BY d.due_at
LIMIT 1
