-- Delete batches that are locked, those which a job or a live registration has come into meanwhile left out.
WITH page AS (
    SELECT k.batch_key
    FROM unnest($1::bigint[]) AS k (batch_key)
    WHERE
        NOT EXISTS (SELECT FROM jobs AS j WHERE j.batch_key = k.batch_key)
        AND NOT EXISTS (
            SELECT FROM webhooks AS w WHERE w.batch_key = k.batch_key AND w.kind = 0 AND w.deleted_at IS NULL
        )
),
left_it AS (
    DELETE FROM batch_leavers AS l USING page AS p WHERE l.batch_key = p.batch_key RETURNING l.batch_key
),
accepted AS (
    DELETE FROM batch_delivered AS d USING page AS p WHERE d.batch_key = p.batch_key RETURNING d.batch_key
),
gone AS (
    DELETE FROM batches AS b USING page AS p WHERE b.batch_key = p.batch_key RETURNING b.batch_key
)
SELECT
    (SELECT count(*) FROM gone)::integer AS batches,
    (SELECT count(*) FROM left_it)::integer AS batch_leavers,
    (SELECT count(*) FROM accepted)::integer AS batch_delivered
