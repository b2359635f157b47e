-- Note a partition that was made.
INSERT INTO partitions (parent, name, starts_at, ends_at) VALUES ($1::text, $2::text, $3::timestamptz, $4::timestamptz)
ON CONFLICT (name) DO NOTHING
