-- The registrations, past and present, under a public id.
SELECT webhook_key FROM webhooks WHERE tenant_id = $1 AND webhook_id = $2 ORDER BY webhook_key DESC LIMIT 100
