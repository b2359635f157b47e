-- How deliveries stand whose decision was refused; those that have left the queue are not in it.
SELECT delivery_id, lease_token, flag, flag_reason
FROM deliveries
WHERE delivery_id = ANY ($1::bigint[])
