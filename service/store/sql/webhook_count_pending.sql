-- Unfinished deliveries of a webhook; counting stops at 10,000.
SELECT count(*) FROM (SELECT FROM deliveries WHERE webhook_key = $1 LIMIT 10000) AS d
