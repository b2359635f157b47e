-- The core: jobs, batches, webhooks, messages, the delivery queue and its history.
-- Text ids compare byte for byte (COLLATE "C"). Instants are UTC. Small closed sets are smallint; the words are in
-- service/store/codes.py.

CREATE TABLE schema_info (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    oldest_code text NOT NULL  -- the oldest release that this schema still serves
);
INSERT INTO schema_info (oldest_code) VALUES ('0.1.0');

CREATE TABLE tenants (
    tenant_id text COLLATE "C" PRIMARY KEY,
    -- Grows with every change that routing must see; begins at the time, so that a purged tenant's is never used again.
    routing_version bigint NOT NULL DEFAULT (extract(EPOCH FROM clock_timestamp()) * 1000)::bigint,
    signing_secrets bytea,                      -- sealed; the default secret, for one-shot URLs
    created_at timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE batches (
    batch_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    seq integer NOT NULL,                 -- 1, 2, … : the incarnations of one name
    incarnation_id text COLLATE "C" NOT NULL,
    adopted boolean NOT NULL DEFAULT false,  -- the incarnation id is the producer's own
    source text,                          -- profile; the first one seen wins
    ended_at timestamptz,
    ended_by text,                        -- event id of the deletion
    sealed boolean NOT NULL DEFAULT false,
    sealed_by text,                       -- event id of the newest seal
    declared_total integer,
    declared_version bigint NOT NULL DEFAULT -1,
    entered integer NOT NULL DEFAULT 0,   -- distinct jobs that are or ever were members, or were removed
    members integer NOT NULL DEFAULT 0,
    started integer NOT NULL DEFAULT 0,   -- members that started or finished
    succeeded integer NOT NULL DEFAULT 0,
    failed integer NOT NULL DEFAULT 0,
    canceled integer NOT NULL DEFAULT 0,
    dirty integer NOT NULL DEFAULT 0,     -- members whose run has no batch_generation yet
    dirty_canceled integer NOT NULL DEFAULT 0,
    fingerprint bytea NOT NULL DEFAULT '\x00000000000000000000000000000000',
    created_at timestamptz,               -- earliest member's
    started_at timestamptz,
    completed_at timestamptz,
    times_stale boolean NOT NULL DEFAULT false,
    has_leavers boolean NOT NULL DEFAULT false,
    finish integer NOT NULL DEFAULT 0,    -- generation of the newest finish
    finish_message_id text COLLATE "C",
    settle_seconds integer,               -- of the registration
    settle_due_at timestamptz,
    loud boolean NOT NULL DEFAULT false,  -- some event since the last finish is recent enough to notify about
    trace text,                           -- trace context of the event that last changed what the batch sees
    first_seen_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now(),
    reconciled_at timestamptz NOT NULL DEFAULT now(),
    UNIQUE (tenant_id, name, seq),
    UNIQUE (tenant_id, name, incarnation_id)
);
CREATE INDEX batches_listed ON batches (tenant_id, batch_key DESC);
CREATE INDEX batches_settling ON batches (settle_due_at) WHERE settle_due_at IS NOT NULL;
CREATE INDEX batches_to_reconcile ON batches (updated_at) WHERE updated_at > reconciled_at;

-- The newest finish that a batch's own webhook accepted; apart from the batch row, so that recording an outcome
-- never waits for ingest.
CREATE TABLE batch_delivered (
    batch_key bigint PRIMARY KEY,
    generation integer NOT NULL
);

CREATE TABLE jobs (
    tenant_id text COLLATE "C" NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    seen_seq bigint GENERATED ALWAYS AS IDENTITY,  -- order of first sight, for lists and reruns of a subject
    generation integer NOT NULL,
    phase smallint NOT NULL,              -- 0 stored, 1 queued, 2 processing, 3 succeeded, 4 failed, 5 canceled
    batch_key bigint,
    batch_generation integer,             -- the finish in which this run first appeared
    removed_generation integer NOT NULL DEFAULT 0,
    subject_id text COLLATE "C",
    created_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    doc bytea NOT NULL,                   -- the rest of the run, JSON, with the order in which each field was set
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant_id, job_id)
);
CREATE INDEX jobs_of_batch ON jobs (batch_key, seen_seq) WHERE batch_key IS NOT NULL;
CREATE INDEX jobs_of_subject ON jobs (tenant_id, subject_id, seen_seq) WHERE subject_id IS NOT NULL;

-- Jobs that left a batch, or were removed from it, known or not.
CREATE TABLE batch_leavers (
    batch_key bigint NOT NULL,
    job_id text COLLATE "C" NOT NULL,
    removed_generation integer NOT NULL DEFAULT 0,  -- 0: moved away, never removed
    event_ids text NOT NULL DEFAULT '[]',           -- JSON: of the job.removed events that spoke of it, newest last
    PRIMARY KEY (batch_key, job_id)
);

CREATE TABLE webhooks (
    webhook_key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    kind smallint NOT NULL,               -- 0 batch, 1 account, 2 one-shot
    batch_key bigint,
    lane bigint NOT NULL,                 -- webhook_key; one-shots to one origin share one
    state smallint NOT NULL DEFAULT 0,    -- 0 enabled, 1 paused, 2 disabled
    state_reason text,
    state_detail text,
    state_at timestamptz NOT NULL DEFAULT now(),
    untold boolean NOT NULL DEFAULT false,  -- disabled by operational deliveries: no subscriber is told
    revision bigint NOT NULL DEFAULT 1,
    url bytea NOT NULL,                   -- sealed
    url_hash bytea NOT NULL,              -- SHA-256 over tenant and URL: equality without the clear text
    origin text NOT NULL,                 -- scheme://host:port in clear, for operators
    custom_headers bytea,                 -- sealed JSON
    secrets bytea,                        -- sealed JSON; null for one-shots (the tenant's default secret signs)
    signing text NOT NULL DEFAULT 'hmac',
    description text,
    settle_seconds integer,
    notify_if_done boolean NOT NULL DEFAULT true,
    retry_schedule integer[],
    timeout_seconds double precision,
    max_in_flight integer,
    rate_limit integer,
    event_types text[],
    scopes text[],
    batch_names text[],
    created_at timestamptz NOT NULL DEFAULT now(),
    written_at timestamptz NOT NULL DEFAULT now(),  -- the registration itself
    changed_at timestamptz NOT NULL DEFAULT now(),  -- anything that a worker must learn of
    deleted_at timestamptz,
    idle_at timestamptz                   -- a hidden one: found unused then; about to be forgotten
);
CREATE UNIQUE INDEX webhooks_public ON webhooks (tenant_id, webhook_id) WHERE deleted_at IS NULL;
CREATE INDEX webhooks_public_past ON webhooks (tenant_id, webhook_id, webhook_key DESC);
CREATE UNIQUE INDEX webhooks_of_batch ON webhooks (batch_key) WHERE kind = 0 AND deleted_at IS NULL;
CREATE UNIQUE INDEX webhooks_one_shot ON webhooks (tenant_id, url_hash) WHERE kind = 2 AND deleted_at IS NULL;
CREATE INDEX webhooks_account ON webhooks (tenant_id) WHERE kind = 1 AND deleted_at IS NULL;
CREATE INDEX webhooks_changed ON webhooks (changed_at);

-- How a webhook fares; written by outcomes, apart from its settings.
CREATE TABLE webhook_health (
    webhook_key bigint PRIMARY KEY REFERENCES webhooks ON DELETE CASCADE,
    health bytea,                         -- JSON of domain.health.Health
    held_until timestamptz,               -- the receiver asked for rest
    last_success_at timestamptz,
    last_failure_at timestamptz,
    last_error text,
    breaker smallint NOT NULL DEFAULT 0,  -- 0 closed, 1 open, 2 half-open
    probe_at timestamptz,
    rate_tokens double precision,         -- of rate_limit, as of rate_at; null: a full bucket
    rate_at timestamptz,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp() -- of all but the rate limit's columns
) WITH (fillfactor = 50);
CREATE INDEX webhook_health_open ON webhook_health (webhook_key) WHERE breaker <> 0;
CREATE INDEX webhook_health_held ON webhook_health (webhook_key) WHERE held_until IS NOT NULL;

CREATE TABLE messages (
    message_id text COLLATE "C" PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    type text NOT NULL,
    scope smallint NOT NULL,              -- 0 batch, 1 job, 2 none (operational, test)
    batch_key bigint,
    job_id text COLLATE "C",
    generation integer NOT NULL,
    source text NOT NULL,
    finished_at timestamptz NOT NULL,     -- when the work finished
    created_at timestamptz NOT NULL DEFAULT now(),
    body_at timestamptz NOT NULL,         -- which partition holds the body
    size integer NOT NULL,
    renotified boolean NOT NULL DEFAULT false,
    expunged_at timestamptz
);
CREATE INDEX messages_of_batch ON messages (batch_key, generation DESC) WHERE batch_key IS NOT NULL AND scope = 0;
CREATE INDEX messages_of_job ON messages (tenant_id, job_id, generation DESC) WHERE job_id IS NOT NULL;
CREATE INDEX messages_listed ON messages (tenant_id, created_at);

CREATE TABLE message_bodies (
    message_id text COLLATE "C" NOT NULL,
    body_at timestamptz NOT NULL,
    body bytea NOT NULL,
    trace text,                           -- trace context that attempts continue; here, since a claim reads this row
    PRIMARY KEY (message_id, body_at)
) PARTITION BY RANGE (body_at);

-- The queue: everything that is not finished. Narrow and hot.
CREATE TABLE deliveries (
    delivery_id bigint GENERATED BY DEFAULT AS IDENTITY,
    tenant_id text COLLATE "C" NOT NULL,
    webhook_key bigint NOT NULL,
    lane bigint NOT NULL,                 -- its webhook's; webhook_key when that is a one-shot that is not well
    message_id text COLLATE "C" NOT NULL,
    body_at timestamptz NOT NULL,
    type text NOT NULL,
    scope smallint NOT NULL,
    group_key bigint,                     -- batch_key, or minus the hash of (tenant, job): one on the wire per group
                                          -- and webhook, newer supersedes; null: stands alone
    batch_key bigint,
    job_id text COLLATE "C",
    generation integer NOT NULL,
    state smallint NOT NULL DEFAULT 0,    -- 0 pending, 1 retrying, 2 held
    reason text,
    attempts integer NOT NULL DEFAULT 0,  -- all that were ever made; the newest has this number
    attempts_before integer NOT NULL DEFAULT 0,  -- those before the present schedule, or beside it
    created_at timestamptz NOT NULL DEFAULT now(),
    first_due_at timestamptz NOT NULL DEFAULT now(),
    due_at timestamptz,                   -- null while held, or while it waits for another delivery
    held_at timestamptz,
    waits_for bigint,                     -- an older delivery of the same work that is on the wire
    lease_token bigint,
    lease_until timestamptz,
    flag smallint NOT NULL DEFAULT 0,     -- what becomes of it if the attempt on the wire fails:
                                          -- 1 superseded, 2 canceled, 3 held, 4 schedule restarted
    flag_reason text,
    extra smallint NOT NULL DEFAULT 0,    -- 1 test, 2 replay, 3 operational
    resume_state smallint,                -- a redelivery: the state (live or done) that it goes back to if its one
    resume_reason text,                   -- extra attempt fails, with the reason and due time of then; null: no
    resume_due_at timestamptz,            -- redelivery
    last_class text,
    last_error text,
    UNIQUE (message_id, webhook_key)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
-- A lease has a token and an end, or neither. Predicates name the end where a look-up by something else names the token:
-- an index that is small, in the planner's eyes, must not be walked from end to end for it.
CREATE INDEX deliveries_next ON deliveries (due_at) WHERE lease_until IS NULL AND due_at IS NOT NULL;
CREATE INDEX deliveries_leased ON deliveries (lease_until) WHERE lease_until IS NOT NULL;
CREATE INDEX deliveries_of_webhook ON deliveries (webhook_key, delivery_id);
CREATE INDEX deliveries_held ON deliveries (webhook_key, held_at) WHERE state = 2;
CREATE INDEX deliveries_waiting ON deliveries (waits_for) WHERE waits_for IS NOT NULL;
CREATE INDEX deliveries_listed ON deliveries (tenant_id, delivery_id);
CREATE INDEX deliveries_extra ON deliveries (lane, due_at) WHERE lease_until IS NULL AND (extra = 1 OR resume_state IS NOT NULL);
-- Those that claims and outcomes need come last: while the queue is small all indexes cost the same, and PostgreSQL takes
-- the newest.
CREATE INDEX deliveries_of_group ON deliveries (group_key, webhook_key) WHERE group_key IS NOT NULL;
CREATE INDEX deliveries_due ON deliveries (lane, due_at) WHERE lease_token IS NULL AND due_at IS NOT NULL;
ALTER TABLE deliveries ADD PRIMARY KEY (delivery_id);

-- History: delivered, failed, superseded, canceled.
CREATE TABLE deliveries_done (
    delivery_id bigint NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    webhook_key bigint,                   -- null: the destination was never known
    webhook_id text COLLATE "C" NOT NULL,
    message_id text COLLATE "C" NOT NULL,
    body_at timestamptz NOT NULL,
    type text NOT NULL,
    scope smallint NOT NULL,
    group_key bigint,
    batch_key bigint,
    job_id text COLLATE "C",
    generation integer NOT NULL,
    state smallint NOT NULL,              -- 4 delivered, 5 failed, 6 superseded, 7 canceled
    reason text,
    attempts integer NOT NULL,
    created_at timestamptz NOT NULL,
    first_due_at timestamptz NOT NULL,
    finished_at timestamptz NOT NULL,
    extra smallint NOT NULL DEFAULT 0,
    last_class text,
    last_error text,
    PRIMARY KEY (delivery_id, finished_at)
) PARTITION BY RANGE (finished_at);
CREATE INDEX deliveries_done_listed ON deliveries_done (tenant_id, delivery_id);
CREATE INDEX deliveries_done_of_webhook ON deliveries_done (webhook_key, delivery_id);
CREATE INDEX deliveries_done_of_message ON deliveries_done (message_id);
CREATE INDEX deliveries_done_failed ON deliveries_done (finished_at) WHERE state = 5;
CREATE INDEX deliveries_done_of_group ON deliveries_done (group_key) WHERE group_key IS NOT NULL;

CREATE TABLE attempts (
    delivery_id bigint NOT NULL,
    number integer NOT NULL,
    started_at timestamptz NOT NULL,
    webhook_key bigint NOT NULL,
    duration_ms integer NOT NULL,
    outcome text NOT NULL,                -- domain.attempts.OutcomeClass
    status smallint,
    detail text,
    flags text[],
    origin text,
    excerpt bytea,
    next_at timestamptz,
    superfluous boolean NOT NULL DEFAULT false  -- recorded after its lease was lost, or under a replaced revision
) PARTITION BY RANGE (started_at);
CREATE INDEX attempts_of_delivery ON attempts (delivery_id, number);

CREATE TABLE kafka_offsets (
    topic text COLLATE "C" NOT NULL,
    partition integer NOT NULL,
    next_offset bigint,                   -- null: assigned, nothing ingested yet
    catch_up_until bigint NOT NULL DEFAULT 0,  -- end offset when the partition was first read
    owner text NOT NULL,                  -- the fence: who may write
    updated_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (topic, partition)
);

CREATE TABLE dead_letters (
    dead_letter_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    received_at timestamptz NOT NULL DEFAULT now(),
    topic text NOT NULL,
    partition integer NOT NULL,
    kafka_offset bigint NOT NULL,
    reason text NOT NULL,                 -- closed set: service/ingest/poison.py
    detail text NOT NULL,
    key bytea,
    headers bytea NOT NULL,               -- JSON array of [name, base64 value]
    value bytea,                          -- the original bytes, up to 1 MiB
    size bigint NOT NULL,
    sha256 bytea NOT NULL,
    mirrored_at timestamptz,
    replayed_at timestamptz,
    UNIQUE (topic, partition, kafka_offset)
);
CREATE INDEX dead_letters_received ON dead_letters (received_at);

CREATE TABLE partitions (                 -- time partitions that upkeep made, for the gauge and for retention
    parent text NOT NULL,
    name text PRIMARY KEY,
    starts_at timestamptz NOT NULL,
    ends_at timestamptz NOT NULL
);

-- How far operational events (webhooks disabled, deliveries exhausted) were told, per way of telling.
CREATE TABLE operational_progress (
    name text PRIMARY KEY,
    told_until timestamptz NOT NULL DEFAULT now()
);

-- What ingest hands over, many rows at a time: an array of these costs the service and the server half of an array per
-- column. A release that hands over more gets types of its own, since older code goes on using these.
CREATE TYPE job_input AS (
    tenant_id text,
    job_id text,
    generation integer,
    phase smallint,
    batch_key bigint,
    batch_generation integer,
    removed_generation integer,
    subject_id text,
    created_at timestamptz,
    started_at timestamptz,
    completed_at timestamptz,
    doc bytea
);

CREATE TYPE message_input AS (
    message_id text,
    tenant_id text,
    type text,
    scope smallint,
    batch_key bigint,
    job_id text,
    generation integer,
    source text,
    finished_at timestamptz,
    body bytea,
    renotified boolean,
    trace text
);

CREATE TYPE delivery_input AS (
    tenant_id text,
    webhook_key bigint,
    lane bigint,
    message_id text,
    body_at timestamptz,
    type text,
    scope smallint,
    group_key bigint,
    batch_key bigint,
    job_id text,
    generation integer,
    held text,
    waits_for bigint,
    lease_token bigint,
    lease_until timestamptz,
    extra smallint
);
