-- What only the admin API needs: keys, idempotent answers, the audit log, replays, operator pauses, roll-ups.

CREATE TABLE api_keys (
    key_seq bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key_id text COLLATE "C" NOT NULL UNIQUE,
    tenant_id text COLLATE "C",           -- null: an operator key
    roles text[] NOT NULL,
    secret_hash bytea NOT NULL,           -- SHA-256 of 32 random bytes: nothing to guess, so nothing to slow down
    description text,
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    expires_at timestamptz,
    revoked_at timestamptz,
    last_used_at timestamptz
);

CREATE TABLE idempotency (
    scope_hash bytea PRIMARY KEY,         -- of (tenant, key, method, path, Idempotency-Key)
    request_hash bytea NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    status smallint NOT NULL,
    answer bytea NOT NULL,                -- sealed: it may hold a secret that is shown once
    created_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX idempotency_created ON idempotency (created_at);

CREATE TABLE audit_log (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL DEFAULT now(),
    tenant_id text COLLATE "C",           -- null: not about one tenant
    key_id text NOT NULL,                 -- who; ``operator`` is the key of the settings
    action text NOT NULL,                 -- the operation's name in the OpenAPI document
    target text NOT NULL,
    before text,                          -- JSON without secrets
    after text
);
CREATE INDEX audit_log_of_tenant ON audit_log (tenant_id, audit_id);
CREATE INDEX audit_log_at ON audit_log (at);

CREATE TABLE replays (
    replay_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    webhook_key bigint NOT NULL,
    webhook_id text COLLATE "C" NOT NULL,
    which text NOT NULL,                  -- failed, held, missing, all
    since timestamptz NOT NULL,
    until timestamptz NOT NULL,
    rate integer NOT NULL,                -- deliveries a second
    state text NOT NULL DEFAULT 'running',  -- running, done, canceled, failed
    reason text,
    phase text NOT NULL,                  -- finished (history of the webhook), missing (messages without a delivery)
    position text NOT NULL DEFAULT '',    -- where in the phase the next thousand rows begin
    scanned bigint NOT NULL DEFAULT 0,
    queued bigint NOT NULL DEFAULT 0,
    skipped bigint NOT NULL DEFAULT 0,
    next_at timestamptz NOT NULL DEFAULT now(),
    created_at timestamptz NOT NULL DEFAULT now(),
    created_by text NOT NULL,
    finished_at timestamptz
);
CREATE UNIQUE INDEX replays_running ON replays (webhook_key) WHERE state = 'running';
CREATE INDEX replays_due ON replays (next_at) WHERE state = 'running';

-- A large replay needs ``force`` and a dry run before it: which ones were made.
CREATE TABLE replay_trials (
    webhook_key bigint NOT NULL,
    request_hash bytea NOT NULL,          -- of which, since, until
    made_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (webhook_key, request_hash)
);

-- Claims leave out what matches; nothing else changes, and every clock of a paused delivery stands still.
CREATE TABLE operator_pauses (
    pause_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope text NOT NULL CHECK (scope IN ('all', 'tenant', 'host')),
    tenant_id text COLLATE "C",
    host text,                            -- lower case, without port
    reason text,
    created_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    ended_at timestamptz                  -- kept a while, for the clocks
);
CREATE UNIQUE INDEX operator_pauses_once ON operator_pauses (scope, coalesce(tenant_id, ''), coalesce(host, ''))
    WHERE ended_at IS NULL;

-- Whether a pause names a webhook, by its tenant and its origin.
CREATE FUNCTION names_webhook(pause operator_pauses, tenant text, origin text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN pause.scope = 'all'
    OR (pause.scope = 'tenant' AND pause.tenant_id = tenant)
    OR (pause.scope = 'host' AND pause.host = btrim(substring(origin FROM '://(.*?)(?::[0-9]+)?$'), '[]'));

-- How long deliveries of a webhook are tried: the sum of its own schedule's steps, else so many seconds.
CREATE FUNCTION schedule_span(steps integer[], otherwise double precision) RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN make_interval(secs => coalesce((SELECT sum(s.step) FROM unnest(steps) AS s (step))::double precision, otherwise));

-- How long a webhook was paused by operators since an instant; what pauses share counts once.
CREATE FUNCTION paused_since(since timestamptz, tenant text, origin text) RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
RETURN (
    SELECT coalesce(sum(upper(r.span) - lower(r.span)), interval '0')
    FROM unnest((
        SELECT range_agg(tstzrange(greatest(p.created_at, since), greatest(p.ended_at, p.created_at)))
        FROM operator_pauses AS p
        WHERE p.ended_at > since AND names_webhook(p, tenant, origin)
    )) AS r (span)
);

-- Attempts per webhook, outcome and five minutes, made from ``attempts`` by upkeep.
CREATE TABLE attempt_rollups (
    webhook_key bigint NOT NULL,
    bucket_at timestamptz NOT NULL,
    outcome text NOT NULL,
    attempts integer NOT NULL,
    duration_ms bigint NOT NULL,          -- sum
    histogram integer[] NOT NULL,         -- attempts by duration; bounds: service/store/stats.py
    PRIMARY KEY (webhook_key, bucket_at, outcome)
);
CREATE INDEX attempt_rollups_bucket ON attempt_rollups (bucket_at);
CREATE TABLE rollup_progress (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    rolled_until timestamptz NOT NULL
);
CREATE INDEX attempts_started ON attempts USING brin (started_at);

CREATE INDEX webhooks_listed ON webhooks (tenant_id, kind, webhook_key) WHERE deleted_at IS NULL;
CREATE INDEX webhooks_with_pair ON webhooks (tenant_id, webhook_key) WHERE signing = 'ed25519' AND deleted_at IS NULL;
