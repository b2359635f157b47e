-- How many periods beyond the current one are ready, of the table that has fewest.
SELECT coalesce(min(ahead), 0)::integer
FROM (
    SELECT count(*) FILTER (WHERE p.starts_at > now()) AS ahead
    FROM partitions AS p
    GROUP BY p.parent
) AS counted
