-- The partitions of one table that upkeep has made, oldest first.
SELECT name, starts_at, ends_at FROM partitions WHERE parent = $1::text ORDER BY starts_at
