-- This connection is alive, and so is its holder.
SELECT 1
