-- Live webhooks of the given kinds, newest first: a short scan of the index per kind.
SELECT
    w.webhook_key, w.tenant_id, w.webhook_id, w.kind, w.batch_key, w.lane, w.state, w.state_reason, w.state_detail,
    w.state_at, w.revision, w.url, w.origin, w.custom_headers, w.secrets, w.signing, w.description, w.settle_seconds,
    w.notify_if_done, w.retry_schedule, w.timeout_seconds, w.max_in_flight, w.rate_limit, w.event_types, w.scopes,
    w.batch_names, w.created_at, w.written_at, h.held_until, h.last_success_at, h.last_failure_at, h.last_error
FROM unnest($2::smallint[]) AS k (kind)
CROSS JOIN LATERAL (
    SELECT *
    FROM webhooks AS o
    WHERE o.tenant_id = $1 AND o.kind = k.kind AND o.webhook_key < $3 AND o.deleted_at IS NULL
    ORDER BY o.webhook_key DESC
    LIMIT $4
) AS w
LEFT JOIN webhook_health AS h USING (webhook_key)
ORDER BY w.webhook_key DESC
LIMIT $4
