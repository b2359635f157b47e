-- How many rows of each table are a tenant's (dead letters apart: their bytes tell).
SELECT
    (SELECT count(*) FROM api_keys WHERE tenant_id = $1) AS api_keys,
    (SELECT count(*) FROM replays WHERE tenant_id = $1) AS replays,
    (SELECT count(*) FROM deliveries WHERE tenant_id = $1) AS deliveries,
    (SELECT count(*) FROM deliveries_done WHERE tenant_id = $1) AS deliveries_done,
    (
        SELECT count(*) FROM attempts AS a
        WHERE
            a.delivery_id IN (
                SELECT d.delivery_id FROM deliveries AS d WHERE d.tenant_id = $1
                UNION
                SELECT d.delivery_id FROM deliveries_done AS d WHERE d.tenant_id = $1
            )
    ) AS attempts,
    (SELECT count(*) FROM messages WHERE tenant_id = $1) AS messages,
    (
        SELECT count(*) FROM messages AS m JOIN message_bodies AS b USING (message_id, body_at) WHERE m.tenant_id = $1
    ) AS message_bodies,
    (SELECT count(*) FROM jobs WHERE tenant_id = $1) AS jobs,
    (SELECT count(*) FROM batches WHERE tenant_id = $1) AS batches,
    (SELECT count(*) FROM batch_leavers AS l JOIN batches AS b USING (batch_key) WHERE b.tenant_id = $1) AS batch_leavers,
    (SELECT count(*) FROM batch_delivered AS d JOIN batches AS b USING (batch_key) WHERE b.tenant_id = $1) AS batch_delivered,
    (SELECT count(*) FROM webhooks WHERE tenant_id = $1) AS webhooks,
    (SELECT count(*) FROM webhook_health AS h JOIN webhooks AS w USING (webhook_key) WHERE w.tenant_id = $1) AS webhook_health,
    (SELECT count(*) FROM replay_trials AS t JOIN webhooks AS w USING (webhook_key) WHERE w.tenant_id = $1) AS replay_trials,
    (SELECT count(*) FROM attempt_rollups AS r JOIN webhooks AS w USING (webhook_key) WHERE w.tenant_id = $1) AS attempt_rollups,
    (SELECT count(*) FROM idempotency WHERE tenant_id = $1) AS idempotency,
    (SELECT count(*) FROM audit_log WHERE tenant_id = $1) AS audit_log,
    (SELECT count(*) FROM operator_pauses WHERE tenant_id = $1) AS operator_pauses,
    (SELECT count(*) FROM tenants WHERE tenant_id = $1) AS tenants
