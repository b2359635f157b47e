UPDATE batches AS b
SET
    incarnation_id = n.incarnation_id,
    adopted = n.adopted,
    source = n.source,
    ended_at = n.ended_at,
    ended_by = n.ended_by,
    sealed = n.sealed,
    sealed_by = n.sealed_by,
    declared_total = n.declared_total,
    declared_version = n.declared_version,
    entered = n.entered,
    members = n.members,
    started = n.started,
    succeeded = n.succeeded,
    failed = n.failed,
    canceled = n.canceled,
    dirty = n.dirty,
    dirty_canceled = n.dirty_canceled,
    fingerprint = n.fingerprint,
    created_at = n.created_at,
    started_at = n.started_at,
    completed_at = n.completed_at,
    times_stale = n.times_stale,
    has_leavers = n.has_leavers,
    finish = n.finish,
    finish_message_id = n.finish_message_id,
    settle_due_at = n.settle_due_at,
    loud = n.loud,
    trace = n.trace,
    updated_at = now()
FROM unnest(
    $1::bigint[], $2::text[], $3::boolean[], $4::text[], $5::timestamptz[], $6::text[], $7::boolean[], $8::text[],
    $9::integer[], $10::bigint[], $11::integer[], $12::integer[], $13::integer[], $14::integer[], $15::integer[],
    $16::integer[], $17::integer[], $18::integer[], $19::bytea[], $20::timestamptz[], $21::timestamptz[],
    $22::timestamptz[], $23::boolean[], $24::boolean[], $25::integer[], $26::text[], $27::timestamptz[],
    $28::boolean[], $29::text[]
) AS n (
    batch_key, incarnation_id, adopted, source, ended_at, ended_by, sealed, sealed_by, declared_total,
    declared_version, entered, members, started, succeeded, failed, canceled, dirty, dirty_canceled, fingerprint,
    created_at, started_at, completed_at, times_stale, has_leavers, finish, finish_message_id, settle_due_at, loud,
    trace
)
WHERE b.batch_key = n.batch_key
