"""Every setting: its name, type, default, range and one sentence of meaning.

Belongs here: one field per setting, grouped by what it is about (a group's docstring is its heading in the reference).
The environment name is the field's name in capitals with the prefix ``WEBHOOKD_``. Does not belong here: the form of a
value (``values``), what two settings together mean (``conflicts``), where values come from (``loading``).
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, SecretStr

from service import __version__
from service.config import values as v
from service.config.durations import parse_duration

_HOUR, _DAY = timedelta(hours=1), timedelta(days=1)
_STEPS = ("5s", "5m", "30m", "2h", "5h", "10h", "14h", "20h", "24h")


def _shown(of: str = "", default: str | None = None) -> dict[str, Any]:
    """What the reference says where types and bounds do not: the form of a value, a default that varies."""
    return {"shown_range": of} if default is None else {"shown_range": of, "shown_default": default}


class Database(BaseModel):
    """Database"""

    database_url: v.Dsn = Field(
        SecretStr(""),
        description=(
            "PostgreSQL (14 or newer) that holds everything: `postgresql://user:password@host/name`; "
            "from a file it may change while webhookd runs."
        ),
        json_schema_extra=_shown("PostgreSQL address"),
    )
    database_listen_url: v.Dsn = Field(
        SecretStr(""),
        description=(
            "Direct address for LISTEN, the leader's lock and migrations "
            "when `DATABASE_URL` goes through a transaction pooler."
        ),
        json_schema_extra=_shown("PostgreSQL address", default="as `DATABASE_URL`"),
    )
    database_pool_size: int = Field(10, ge=2, le=200, description="Connections that one process may hold open.")
    data_dir: v.Directory = Field(
        Path("~/.local/share/webhookd"),
        validate_default=True,
        description="Where `--embedded` and `demo --keep` put their PostgreSQL.",
        json_schema_extra=_shown("a directory", default="~/.local/share/webhookd"),
    )


class Kafka(BaseModel):
    """Kafka"""

    kafka_bootstrap_servers: v.Brokers = Field(
        (),
        description="Brokers as `host:port`; empty means no Kafka, and events come by HTTP only.",
        json_schema_extra=_shown("list of host:port"),
    )
    kafka_topics: v.Topics = Field(
        ("extraction.jobs",),
        min_length=1,
        description="Topics with job events.",
        json_schema_extra=_shown("list of topic names"),
    )
    kafka_group_id: str = Field(
        "webhookd",
        min_length=1,
        max_length=249,
        description="Consumer group.",
        json_schema_extra=_shown("1 – 249 characters"),
    )
    kafka_dlq_topic: v.OptionalTopic = Field(
        "",
        description="Topic that dead letters are copied to; empty: they are kept in the database only.",
        json_schema_extra=_shown("a topic name or empty"),
    )
    kafka_security_protocol: Annotated[Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"], v.Upper] = Field(
        "PLAINTEXT", description="How brokers are reached."
    )
    kafka_sasl_mechanism: Annotated[Literal["", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], v.Upper] = (
        Field("", description="How webhookd proves to brokers who it is, with a `SASL_` protocol.")
    )
    kafka_sasl_username: str = Field(
        "",
        max_length=255,
        description="User name for PLAIN and SCRAM.",
        json_schema_extra=_shown("at most 255 characters"),
    )
    kafka_sasl_password: SecretStr = Field(
        SecretStr(""), description="Password for PLAIN and SCRAM.", json_schema_extra=_shown("any text")
    )
    kafka_sasl_token: SecretStr = Field(
        SecretStr(""),
        description="Token for OAUTHBEARER; from a file it may be renewed while webhookd runs.",
        json_schema_extra=_shown("any text"),
    )
    kafka_ca_file: v.ExistingFile = Field(
        None,
        description="PEM file with the authorities that sign the brokers' certificates; empty: the system's.",
        json_schema_extra=_shown("a file that exists"),
    )
    operational_topic: v.OptionalTopic = Field(
        "",
        description="Topic for disabled webhooks and exhausted deliveries; empty: not written.",
        json_schema_extra=_shown("a topic name or empty"),
    )


class Events(BaseModel):
    """Job events"""

    notify_max_age: v.Duration = Field(
        _DAY,
        le=400 * _DAY,
        description="On the first read of a partition, finishes older than this update state but are not delivered.",
    )
    profiles_dir: v.ExistingDir = Field(
        None,
        description="Directory with source profiles (`*.toml`) that add to or override the shipped ones.",
        json_schema_extra=_shown("a directory that exists"),
    )
    batch_settle_seconds: v.Duration = Field(
        timedelta(seconds=2),
        le=_HOUR,
        description="How long a batch without a declared total stays all done before it counts as finished.",
    )
    cancel_grace: v.Duration = Field(
        timedelta(seconds=5),
        le=timedelta(minutes=5),
        description="How long a batch with a canceled job waits for its `batch.deleted`.",
    )


class Api(BaseModel):
    """Admin API and operations port"""

    api_host: v.Host = Field(
        "0.0.0.0",  # noqa: S104 - a pod's only way in
        description="Address that the admin API listens on.",
        json_schema_extra=_shown("host name or address"),
    )
    api_port: int = Field(8080, ge=0, le=65535, description="Port of the admin API; 0 takes a free one.")
    ops_host: v.Host = Field(
        "0.0.0.0",  # noqa: S104 - as api_host
        description="Address for probes and metrics.",
        json_schema_extra=_shown("host name or address"),
    )
    ops_port: int = Field(9090, ge=0, le=65535, description="Port for probes and metrics; 0 takes a free one.")
    max_webhooks_per_tenant: int = Field(
        1000, ge=1, le=100_000, description="Account webhooks that one tenant may have."
    )
    limit_reads: int = Field(
        120, ge=1, le=1_000_000, description="Status reads a minute, per key and tenant, in each process."
    )
    limit_writes: int = Field(
        600, ge=1, le=1_000_000, description="Writes a minute, per key and tenant, in each process."
    )
    limit_tests: int = Field(
        5, ge=1, le=10_000, description="Test sends a minute per webhook in each process; a tenant has twice as many."
    )


class Keys(BaseModel):
    """Keys"""

    operator_key: v.OperatorKey = Field(
        SecretStr(""),
        description="The first operator key of the admin API; 32 random characters or more.",
        json_schema_extra=_shown("8 – 512 visible ASCII characters"),
    )
    encryption_keys: v.EncryptionKeys = Field(
        SecretStr(""),
        description=(
            "`id:base64` of 32 bytes, separated by commas; the first encrypts, all decrypt. "
            "A new key is added last, rolled out, then moved first."
        ),
        json_schema_extra=_shown("list of id:base64, ids of 1 – 32 letters, digits, `_`, `-`"),
    )


class Delivery(BaseModel):
    """Delivery"""

    retry_schedule: v.Schedule = Field(
        tuple(parse_duration(step) for step in _STEPS),
        description="1 to 30 waits between attempts, whole seconds, at most 30d together; a webhook may have its own.",
        json_schema_extra=_shown("1 – 30 steps of whole seconds, at most 30d together"),
    )
    retry_jitter: float = Field(0.2, ge=0, le=0.5, description="Share by which each wait is made longer or shorter.")
    request_timeout: v.Duration = Field(
        timedelta(seconds=15),
        ge=timedelta(seconds=1),
        le=timedelta(seconds=30),
        description="Deadline of one attempt, from connecting to the status line; a webhook may have its own.",
    )
    connect_timeout: v.Duration = Field(
        timedelta(seconds=5),
        ge=timedelta(milliseconds=100),
        le=timedelta(seconds=30),
        description="Part of it that connecting and the TLS handshake may take.",
    )
    lease: v.Duration = Field(
        timedelta(seconds=60),
        ge=timedelta(seconds=1),
        le=timedelta(minutes=15),
        description="How long a claimed delivery is a process's own; at least 30s plus `LEASE_MARGIN`.",
    )
    lease_margin: v.Duration = Field(
        timedelta(seconds=10),
        ge=timedelta(seconds=1),
        le=timedelta(minutes=5),
        description="Part of a lease that is kept for recording the outcome.",
    )
    drain_timeout: v.Duration = Field(
        timedelta(seconds=25),
        le=timedelta(minutes=10),
        description="After SIGTERM, how long running attempts may take to end; the pod's grace period must be longer.",
    )
    max_in_flight: int = Field(2000, ge=1, le=50_000, description="Attempts at once in one process.")
    max_in_flight_per_webhook: int = Field(
        10, ge=1, le=100, description="Attempts at once per webhook, over all processes; a webhook may have its own."
    )
    max_body_bytes: int = Field(
        256_000, ge=64_000, le=4_194_304, description="Cap of a message's body; a longer job list is cut and flagged."
    )
    user_agent: v.UserAgent = Field(
        f"webhookd/{__version__}",
        description="`user-agent` header of deliveries.",
        json_schema_extra=_shown("1 – 256 printable ASCII characters", default="webhookd/<version>"),
    )
    disable_after: v.Duration = Field(
        5 * _DAY, ge=_HOUR, le=90 * _DAY, description="A webhook without a success for this long is disabled."
    )


class Egress(BaseModel):
    """What may be reached"""

    allow_http: bool = Field(default=False, description="Accept `http://` destinations; for development.")
    egress_allow: v.EgressRules = Field(
        "",
        description="Exceptions, `[tenant=]host-glob-or-CIDR[:ports]`, to the rules on names and addresses.",
        json_schema_extra=_shown("list of `[tenant=]host-glob-or-CIDR[:ports]`"),
    )
    egress_deny: v.EgressRules = Field(
        "",
        description="Destinations refused beyond those rules, in the same form.",
        json_schema_extra=_shown("list of `[tenant=]host-glob-or-CIDR[:ports]`"),
    )
    egress_ports: v.EgressPorts = Field(
        "",
        description="Ports that destinations may have beside 443.",
        json_schema_extra=_shown("list of ports and ranges, 1 – 65535, or `*`"),
    )
    nat64_prefixes: v.Nat64Prefixes = Field(
        "",
        description="NAT64 prefixes of this network; the IPv4 address inside is judged.",
        json_schema_extra=_shown("list of IPv6 prefixes, /32, /40, /48, /56, /64 or /96"),
    )
    dns_servers: v.DnsServers = Field(
        (),
        description="Resolvers for destinations, `address[:port]`, after the hosts file; empty: the system's.",
        json_schema_extra=_shown("list of address[:port]"),
    )
    ca_file: v.ExistingFile = Field(
        None,
        description="PEM file with authorities trusted beside the system's.",
        json_schema_extra=_shown("a file that exists"),
    )
    egress_proxy: v.ProxyAddress = Field(
        SecretStr(""),
        description="Proxy that deliveries CONNECT through; from a file it may change while webhookd runs.",
        json_schema_extra=_shown("`http://[user:password@]host:port`"),
    )


class Retention(BaseModel):
    """Retention"""

    retention_attempts: v.Duration = Field(
        30 * _DAY, ge=_HOUR, le=3650 * _DAY, description="How long attempts are kept."
    )
    retention_messages: v.Duration = Field(
        90 * _DAY,
        ge=_HOUR,
        le=3650 * _DAY,
        description="How long messages, finished deliveries and dead letters are kept.",
    )
    retention_state: v.Duration = Field(
        400 * _DAY,
        ge=_HOUR,
        le=3650 * _DAY,
        description="How long jobs, batches and the audit log are kept after they were last used, with their messages and "
        "whatever one-shot URLs and retired webhooks leave; older records of a topic are counted `expired`.",
    )


class Logging(BaseModel):
    """Logs and settings file"""

    log_level: Annotated[Literal["debug", "info", "warning", "error"], v.Lower] = Field(
        "info", description="Least level that is written."
    )
    log_format: Annotated[Literal["json", "console"], v.Lower] = Field("json", description="`console` is for people.")
    log_success_sample: float = Field(
        0.0, ge=0, le=1, description="Share of successful attempts and of ordinary ingest transactions that get a line."
    )
    config_file: v.ExistingFile = Field(
        None,
        description="TOML file with settings by lower-case name without prefix; the environment wins over it.",
        json_schema_extra=_shown("a file that exists"),
    )


class Fields(Database, Kafka, Events, Keys, Api, Delivery, Egress, Retention, Logging):
    """All groups together, flat."""


GROUPS: tuple[type[BaseModel], ...] = (Database, Kafka, Events, Keys, Api, Delivery, Egress, Retention, Logging)
