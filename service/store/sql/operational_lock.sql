-- Where a way of telling operational events stopped; its row is made at the first look, and locked.
INSERT INTO operational_progress (name) VALUES ($1)
ON CONFLICT (name) DO UPDATE SET name = excluded.name
RETURNING told_until, now() AS now
