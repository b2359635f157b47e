-- The job.removed events that spoke of these jobs in any incarnation of these batches, ended ones included.
SELECT r.tenant_id, r.name, r.job_id, l.event_ids
FROM unnest($1::text[], $2::text[], $3::text[]) AS r (tenant_id, name, job_id)
JOIN batches AS b ON b.tenant_id = r.tenant_id AND b.name = r.name
JOIN batch_leavers AS l ON l.batch_key = b.batch_key AND l.job_id = r.job_id
WHERE b.has_leavers
