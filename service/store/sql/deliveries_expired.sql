-- Deliveries whose lease has expired, oldest first.
SELECT delivery_id, lease_token
FROM deliveries
WHERE lease_until < now()
ORDER BY lease_until
LIMIT $1::integer
