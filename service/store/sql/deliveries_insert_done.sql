-- Deliveries that are finished as they are made: a destination that does not exist, a run that was overtaken at once.
INSERT INTO deliveries_done (
    delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id,
    generation, state, reason, attempts, created_at, first_due_at, finished_at
)
SELECT
    nextval(pg_get_serial_sequence('deliveries', 'delivery_id')), n.tenant_id, n.webhook_key, n.webhook_id, n.message_id,
    n.body_at, n.type, n.scope, n.group_key, n.batch_key, n.job_id, n.generation, n.state, n.reason, 0, now(), now(),
    now()
FROM unnest(
    $1::text[], $2::bigint[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::smallint[], $8::bigint[],
    $9::bigint[], $10::text[], $11::integer[], $12::smallint[], $13::text[]
) AS n (
    tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope, group_key, batch_key, job_id, generation,
    state, reason
)
