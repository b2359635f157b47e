"""What every role uses: log, metrics, heartbeats, pool, seal, egress policy.

Belongs here: building and opening these. Does not belong here: what a role adds.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from service.app.probing import AgreedClock, ClockSkewProbe, measure_skew
from service.app.tracing import open_spans
from service.config import ConfigError, Configuration, SecretReload, SecretSource, parse_encryption_keys
from service.delivery.waking import Waker
from service.domain.batches import Settling
from service.domain.egress import EgressPolicy, parse_policy
from service.domain.profiles import ProfileSet
from service.domain.schedule import Schedule
from service.domain.webhooks import WebhookDefaults
from service.ingest.broker import KafkaOptions
from service.lifecycle import Heartbeats, LoopLagProbe, Stop, SystemClock, SystemRng, Worker
from service.logs import Logger, Redactor, configure, get_logger
from service.ports import StoreUnavailable
from service.profiles import load_profiles
from service.sealing import Sealer
from service.sender import build_tls_context
from service.sender.names import ascii_host
from service.store.database import Database
from service.store.listening import DueNotifier
from service.store.migrating import check_schema
from service.store.registry import Registry
from service.telemetry import Telemetry

if TYPE_CHECKING:
    from service.telemetry.spans import Spans

RETRY_START = 1.0  # seconds between looks at a database that is away at the start


@dataclass(frozen=True, slots=True)
class Basics:
    """What every role uses."""

    configuration: Configuration
    clock: AgreedClock
    rng: SystemRng
    log: Logger
    telemetry: Telemetry
    heartbeats: Heartbeats
    database: Database
    sealer: Sealer
    policy: EgressPolicy
    waker: Waker
    spans: Spans | None
    redactor: Redactor

    def tell(self, event: str, /, **fields: object) -> None:
        """Write one line at the level that a change of state has."""
        self.log.info(event, **fields)


async def open_basics(stack: AsyncExitStack, configuration: Configuration) -> Basics:
    settings, clock, rng = configuration.settings, AgreedClock(SystemClock()), SystemRng()
    redactor = Redactor(configuration.masks())
    undo = configure(now=clock.machine.now, redactor=redactor, level=settings.log_level, form=settings.log_format)
    stack.push(_leaving_crashes(undo))
    spans = open_spans(stack, configuration, clock.machine, get_logger())
    database = Database(configuration.database_url, size=settings.database_pool_size)
    await stack.enter_async_context(database)
    notifier = DueNotifier(configuration.listen_url)
    stack.callback(notifier.close)
    return Basics(
        configuration,
        clock,
        rng,
        get_logger(),
        Telemetry(request_timeout=settings.request_timeout, retry_schedule=settings.retry_schedule),
        Heartbeats(clock),
        database,
        Sealer([(key.key_id, key.material) for key in settings.sealing_keys]),
        _build_policy(configuration),
        Waker(notifier),
        spans,
        redactor,
    )


def _leaving_crashes(undo: Callable[[], None]) -> Callable[[type[BaseException] | None, object, object], None]:
    """Undo the log's set-up at the end, but not for an error: what ends the process is a line of the log, redacted."""

    def leave(kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or not issubclass(kind, Exception):
            undo()

    return leave


def _build_policy(configuration: Configuration) -> EgressPolicy:
    settings = configuration.settings
    return parse_policy(
        allow_http=settings.allow_http,
        allow=settings.egress_allow,
        deny=settings.egress_deny,
        ports=settings.egress_ports,
        nat64_prefixes=settings.nat64_prefixes,
        to_ascii=ascii_host,
    )


def check_files(configuration: Configuration) -> None:
    """Read what settings point at, before anything is opened. Raises ConfigError, a line for each that is unusable."""
    settings, problems = configuration.settings, []
    readers: dict[str, Callable[[], object]] = {
        "PROFILES_DIR": lambda: load_profiles([settings.profiles_dir] if settings.profiles_dir else []),
        "CA_FILE": lambda: build_tls_context(str(settings.ca_file or "")),
        "KAFKA_CA_FILE": lambda: ssl.create_default_context(cafile=settings.kafka_ca_file),
    }
    for name, read in readers.items():
        try:
            read()
        except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
            words = " ".join(str(error).split()).removeprefix(f"WEBHOOKD_{name} ")
            problems.append(f"WEBHOOKD_{name}: {words}")
    if problems:
        raise ConfigError(problems)


async def wait_for_schema(basics: Basics, stop: Stop) -> None:
    """A database that is away at the start is an outage like any other; a schema that does not fit ends the start."""
    while not stop.is_set():
        try:
            await check_schema(basics.configuration.database_url())
            await measure_skew(basics.clock, basics.database)  # before anybody asks this process for the time
            await warn_of_loose_commits(basics.database, basics.log.warning)
        except StoreUnavailable as error:
            basics.log.warning("database_unavailable", reason=str(error))
            await stop.pause(RETRY_START)
        else:
            return


async def warn_of_loose_commits(database: Database, warn: Callable[..., object]) -> None:
    """Say it where a commit may be lost with its server: what was accepted may be, too. Raises StoreUnavailable."""
    async with database.session() as session:
        setting: str = await session.value("synchronous_commit")
    if setting == "off":
        warn("commits_not_durable", synchronous_commit=setting)


def build_common_workers(basics: Basics) -> tuple[Worker, ...]:
    lag = LoopLagProbe(basics.clock, partial(basics.telemetry.set_gauge, "event_loop_lag_seconds"))
    pool = basics.database
    report_skew = partial(basics.telemetry.set_gauge, "clock_skew_seconds")
    skew = ClockSkewProbe(basics.clock, pool, report_skew, basics.log.warning)
    basics.telemetry.follow("db_pool_size", lambda: float(pool.size))
    basics.telemetry.follow("db_pool_in_use", lambda: float(pool.in_use))
    reload = SecretReload(
        basics.configuration.secrets.values(),
        partial(_apply_secret, basics),
        lambda source, reason: basics.log.error("secret_unusable", setting=source.name, reason=reason),
    )
    return lag, skew, basics.waker, reload


async def _apply_secret(basics: Basics, source: SecretSource) -> None:
    """Most secrets are asked for at each use; the keys of the seal are handed over, pooled connections replaced.

    What was masked in logs stays masked: an old password may still be in an error's text.
    """
    basics.redactor.register(*source.masks())
    if source.name == "database_url":
        await basics.database.renew()
    if source.name == "encryption_keys":
        basics.sealer.rekey([(key.key_id, key.material) for key in parse_encryption_keys(source.get())])
    basics.tell("secret_changed", setting=source.name)


def build_registry(basics: Basics) -> Registry:
    """Build what the registration scripts share."""
    settings = basics.configuration.settings
    defaults = WebhookDefaults(
        tuple(Schedule(settings.retry_schedule).seconds),
        settings.request_timeout.total_seconds(),
        settings.max_in_flight_per_webhook,
    )
    return Registry(
        basics.sealer,
        lambda: basics.policy,
        defaults,
        Settling(settings.batch_settle_seconds, settings.cancel_grace),
        basics.clock,
        basics.rng,
        settings.max_webhooks_per_tenant,
        basics.telemetry.deliveries_finished,
        lambda scope, renotified: basics.telemetry.messages(scope, renotified=renotified),
    )


def build_profiles(basics: Basics) -> ProfileSet:
    """Read the shipped profiles and the operator's own. Raises ValueError for a bad one."""
    own = basics.configuration.settings.profiles_dir
    return load_profiles([own] if own else [])


def kafka_options(configuration: Configuration) -> KafkaOptions:
    """Say how Kafka is reached; secrets are asked for at each connect."""
    settings = configuration.settings
    return KafkaOptions(
        bootstrap_servers=settings.kafka_bootstrap_servers,
        topics=settings.kafka_topics,
        group_id=settings.kafka_group_id,
        security_protocol=settings.kafka_security_protocol,
        sasl_mechanism=settings.kafka_sasl_mechanism,
        sasl_username=settings.kafka_sasl_username,
        sasl_password=configuration.secret("kafka_sasl_password").get,
        sasl_token=configuration.secret("kafka_sasl_token").get,
        ca_file=settings.kafka_ca_file,
    )
