-- The webhook of a replay, unless it was deleted.
SELECT
    w.webhook_key, w.tenant_id, w.webhook_id, w.kind, w.batch_key, w.lane, w.state, w.state_reason, w.state_detail,
    w.state_at, w.revision, w.url, w.origin, w.custom_headers, w.secrets, w.signing, w.description, w.settle_seconds,
    w.notify_if_done, w.retry_schedule, w.timeout_seconds, w.max_in_flight, w.rate_limit, w.event_types, w.scopes,
    w.batch_names, w.created_at, w.written_at, h.held_until, h.last_success_at, h.last_failure_at, h.last_error
FROM webhooks AS w
LEFT JOIN webhook_health AS h USING (webhook_key)
WHERE w.webhook_key = $1 AND w.deleted_at IS NULL
FOR SHARE OF w
