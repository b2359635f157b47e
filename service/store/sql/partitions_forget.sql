-- Forget a partition that was dropped.
DELETE FROM partitions WHERE name = $1::text
