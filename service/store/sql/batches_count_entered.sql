-- Distinct jobs that are in the batch or left it; a lower bound, since one may be back to "stored".
SELECT count(*)::integer
FROM (
    SELECT job_id FROM jobs WHERE batch_key = $1 AND phase > 0
    UNION
    SELECT job_id FROM batch_leavers WHERE batch_key = $1
) AS entered
