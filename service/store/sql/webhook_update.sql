-- Replace all settings of a webhook.
UPDATE webhooks
SET
    url = $2, url_hash = $3, origin = $4, custom_headers = $5, signing = $6, description = $7, settle_seconds = $8,
    notify_if_done = $9, retry_schedule = $10, timeout_seconds = $11, max_in_flight = $12, rate_limit = $13,
    event_types = $14, scopes = $15, batch_names = $16, written_at = $17, revision = revision + 1,
    changed_at = clock_timestamp()
WHERE webhook_key = $1
