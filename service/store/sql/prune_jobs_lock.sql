-- Lock jobs that are on the table's pages from $1 to before $2, had no event since $3 and are in no batch, or in one that
-- was forgotten; at most $4. By place, not by key: a page is read once, where the key's order would read it for every row.
SELECT j.ctid, j.tenant_id, j.job_id
FROM jobs AS j
WHERE
    j.ctid >= $1::tid AND j.ctid < $2::tid AND j.updated_at < $3::timestamptz
    AND (SELECT true FROM batches AS b WHERE b.batch_key = j.batch_key) IS NULL
LIMIT $4::integer
FOR UPDATE OF j SKIP LOCKED
