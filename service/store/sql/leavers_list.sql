-- What is known of these jobs in these batches from before.
SELECT batch_key, job_id, removed_generation, event_ids
FROM batch_leavers
WHERE batch_key = ANY($1::bigint[]) AND job_id = ANY($2::text[])
