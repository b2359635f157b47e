-- Open incarnations. One that another transaction opened meanwhile is left out: the caller starts over.
INSERT INTO batches (
    tenant_id, name, seq, incarnation_id, adopted, source, ended_at, ended_by, sealed, sealed_by, declared_total,
    declared_version, entered, members, started, succeeded, failed, canceled, dirty, dirty_canceled, fingerprint,
    created_at, started_at, completed_at, times_stale, has_leavers, finish, finish_message_id, settle_due_at, loud,
    trace
)
SELECT *
FROM unnest(
    $1::text[], $2::text[], $3::integer[], $4::text[], $5::boolean[], $6::text[], $7::timestamptz[], $8::text[],
    $9::boolean[], $10::text[], $11::integer[], $12::bigint[], $13::integer[], $14::integer[], $15::integer[],
    $16::integer[], $17::integer[], $18::integer[], $19::integer[], $20::integer[], $21::bytea[], $22::timestamptz[],
    $23::timestamptz[], $24::timestamptz[], $25::boolean[], $26::boolean[], $27::integer[], $28::text[],
    $29::timestamptz[], $30::boolean[], $31::text[]
)
ON CONFLICT DO NOTHING
RETURNING batch_key, tenant_id, name, seq
