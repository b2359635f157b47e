SELECT state, count(*) AS count FROM webhooks WHERE deleted_at IS NULL AND kind <> 2 GROUP BY state
