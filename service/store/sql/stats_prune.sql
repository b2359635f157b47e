DELETE FROM attempt_rollups WHERE bucket_at < $1
