INSERT INTO batch_leavers (batch_key, job_id, removed_generation, event_ids)
SELECT * FROM unnest($1::bigint[], $2::text[], $3::integer[], $4::text[])
ON CONFLICT (batch_key, job_id) DO UPDATE
SET removed_generation = excluded.removed_generation, event_ids = excluded.event_ids
