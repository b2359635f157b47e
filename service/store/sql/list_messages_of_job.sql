-- The newest messages of a job.
SELECT message_id FROM messages WHERE tenant_id = $1 AND job_id = $2 ORDER BY generation DESC LIMIT 500
