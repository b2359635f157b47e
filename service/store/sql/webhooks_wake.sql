-- Hidden webhooks that were idle are used again; one that was forgotten meanwhile is missing.
UPDATE webhooks SET idle_at = NULL WHERE webhook_key = ANY ($1::bigint[]) RETURNING webhook_key
