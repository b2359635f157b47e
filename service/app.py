"""THE composition root: builds every part from the settings, enters them in order, runs them.

Belongs here: which part knows which, and in what order they open and close. Does not belong here: any rule.
Closing order is the exit stack's, bottom up: workers have ended before the API, the sender and the pool close; the
operations port closes last.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from service.api.app import build_api
from service.api.parts import ApiLimits, Parts
from service.config import Configuration, SecretReload, SecretSource, parse_encryption_keys
from service.delivery.arrivals import Arrivals, NoEngine
from service.delivery.assembly import DeliverRole, EnginePorts, EngineSettings, build_deliver_role
from service.delivery.attempting import AttemptRules
from service.delivery.entries import SendingDefaults
from service.delivery.waking import Waker
from service.domain.batches import Settling
from service.domain.egress import EgressPolicy, parse_policy
from service.domain.health import HealthRules
from service.domain.schedule import Schedule
from service.domain.targets import parse_url
from service.domain.webhooks import WebhookDefaults
from service.ingest.announcing import Announcer
from service.ingest.applying import Ingestor
from service.ingest.broker import Consumer, KafkaOptions, Producer
from service.ingest.mirror import DeadLetterMirror
from service.ingest.parsing import Parser
from service.ingest.reading import Reader
from service.ingest.requests import EventRequests
from service.ingest.worker import KafkaIngest
from service.lifecycle import (
    Heartbeats,
    LoopLagProbe,
    Stop,
    Supervisor,
    SystemClock,
    SystemRng,
    Worker,
    tune_gc,
)
from service.logs import Logger, Redactor, configure, get_logger
from service.ops import OpsApp, serve_ops
from service.ports import StoreUnavailable
from service.profiles import load_profiles
from service.sealing import Sealer
from service.sender import HttpSender, build_tls_context
from service.sender.dns import AresLookup
from service.sender.names import ascii_host
from service.sender.proxy import parse_proxy
from service.store.batch_upkeep import BatchUpkeep
from service.store.catalog import WebhookCatalog
from service.store.database import Database
from service.store.dead_letters import DeadLetters
from service.store.deliveries import DeliveryStore
from service.store.gauges import QueueLook
from service.store.health import HealthKeeping
from service.store.holds import Holds
from service.store.ingesting import PostgresIngestStore
from service.store.leadership import LeaderLock
from service.store.listening import DueNotifier, NotificationListener
from service.store.migrating import check_schema
from service.store.offsets import OffsetStore
from service.store.partitions import Partitions
from service.store.registry import Registry
from service.store.routing import OneShots, RoutingCopy
from service.telemetry import QueueState, Telemetry
from service.upkeep.gauges import QueueGauging
from service.upkeep.leading import Loop, Upkeep
from service.upkeep.partitions import Keeping, PartitionUpkeep
from service.upkeep.reconciling import Reconcile
from service.upkeep.release import Release
from service.upkeep.rescue import Rescue
from service.upkeep.settling import Settle

ROLES = ("api", "ingest", "deliver")
RETRY_START = 1.0


@dataclass(frozen=True, slots=True)
class Basics:
    """What every role uses."""

    configuration: Configuration
    clock: SystemClock
    rng: SystemRng
    log: Logger
    telemetry: Telemetry
    heartbeats: Heartbeats
    database: Database
    sealer: Sealer
    policy: EgressPolicy
    waker: Waker

    def tell(self, event: str, /, **fields: object) -> None:
        """Write one line at the level that a change of state has."""
        self.log.info(event, **fields)


@dataclass(frozen=True, slots=True)
class Service:
    """The opened service: its workers run until the stop."""

    workers: tuple[Worker, ...]
    log: Logger
    api_port: int
    ops_port: int

    async def run(self, stop: Stop) -> None:
        """Run the workers until the stop. Raises WorkerFailed."""
        tune_gc()
        self.log.info("started", api_port=self.api_port, ops_port=self.ops_port)
        await Supervisor(stop, self.log.error).run(self.workers)
        self.log.info("stopped")


@asynccontextmanager
async def open_service(configuration: Configuration, roles: frozenset[str], stop: Stop) -> AsyncIterator[Service]:
    """Open all parts of the given roles; yields once they listen. Raises SchemaUnfit, OSError for a taken port."""
    async with AsyncExitStack() as stack:
        basics = await _open_basics(stack, configuration)
        checks: dict[str, Any] = {}
        ops = OpsApp(basics.telemetry, basics.heartbeats, stop, checks)
        settings = configuration.settings
        ops_port = await stack.enter_async_context(serve_ops(ops, settings.ops_host, settings.ops_port))
        checks["schema"] = _refuse
        await _wait_for_schema(basics, stop)
        del checks["schema"]
        workers: list[Worker] = [*_common_workers(basics)]
        role = await _add_deliver(stack, basics, workers, checks) if "deliver" in roles else None
        ingestor = _build_ingestor(basics, role)
        if "deliver" in roles:
            workers.append(_build_upkeep(basics, ingestor, role))
        if "ingest" in roles and settings.kafka_bootstrap_servers:
            workers += _build_ingest(basics, ingestor, checks)
        api_port = await _open_api(stack, basics, ingestor) if "api" in roles else 0
        yield Service(tuple(workers), basics.log, api_port, ops_port)


# Basics


async def _open_basics(stack: AsyncExitStack, configuration: Configuration) -> Basics:
    settings, clock, rng = configuration.settings, SystemClock(), SystemRng()
    redactor = Redactor(configuration.masks())
    stack.callback(configure(now=clock.now, redactor=redactor, level=settings.log_level, form=settings.log_format))
    dsn = settings.database_url.get_secret_value()
    database = await stack.enter_async_context(Database(dsn, size=settings.database_pool_size))
    notifier = DueNotifier(settings.listen_url.get_secret_value())
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
    )


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


async def _refuse() -> bool:
    return False


async def _wait_for_schema(basics: Basics, stop: Stop) -> None:
    """A database that is away at the start is an outage like any other; a schema that does not fit ends the start."""
    dsn = basics.configuration.settings.database_url.get_secret_value()
    while not stop.is_set():
        try:
            await check_schema(dsn)
        except StoreUnavailable as error:
            basics.log.error("database_unavailable", reason=str(error))
            await stop.pause(RETRY_START)
        else:
            return


def _common_workers(basics: Basics) -> tuple[Worker, ...]:
    lag = LoopLagProbe(basics.clock, partial(basics.telemetry.set_gauge, "event_loop_lag_seconds"))
    pool = basics.database
    basics.telemetry.follow("db_pool_size", lambda: float(pool.size))
    basics.telemetry.follow("db_pool_in_use", lambda: float(pool.in_use))
    reload = SecretReload(
        basics.configuration.secrets.values(),
        partial(_apply_secret, basics),
        lambda source, reason: basics.log.error("secret_unusable", setting=source.name, reason=reason),
    )
    return lag, basics.waker, reload


def _apply_secret(basics: Basics, source: SecretSource) -> None:
    """Most secrets are asked for at each use; the keys of the seal are handed over."""
    if source.name == "encryption_keys":
        basics.sealer.rekey([(key.key_id, key.material) for key in parse_encryption_keys(source.get())])
    basics.tell("secret_changed", setting=source.name)


# Deliver


async def _add_deliver(
    stack: AsyncExitStack, basics: Basics, workers: list[Worker], checks: dict[str, Any]
) -> DeliverRole:
    settings = basics.configuration.settings
    sender = HttpSender(
        basics.policy,
        AresLookup(settings.dns_servers),
        build_tls_context(str(settings.ca_file or "")),
        proxy=parse_proxy(settings.egress_proxy.get_secret_value()),
    )
    await stack.enter_async_context(sender)
    ports = EnginePorts(
        clock=basics.clock,
        rng=basics.rng,
        queue=DeliveryStore(basics.database),
        webhooks=WebhookCatalog(basics.database, basics.sealer),
        health=HealthKeeping(basics.database),
        listener=NotificationListener(settings.listen_url.get_secret_value()),
        sender=sender,
        observer=basics.telemetry,
        tell=basics.tell,
    )
    role = build_deliver_role(ports, _engine_settings(basics))
    basics.telemetry.follow("deliveries_in_flight", lambda: float(role.slots.in_flight))
    basics.telemetry.follow("outcomes_unrecorded", lambda: float(role.recorder.unrecorded))
    checks["database"] = basics.database.answers
    workers.append(role.engine)
    return role


def _engine_settings(basics: Basics) -> EngineSettings:
    settings = basics.configuration.settings
    defaults = SendingDefaults(
        parse=lambda url, tenant_id: parse_url(url, basics.policy, tenant_id),
        schedule=Schedule(settings.retry_schedule, settings.retry_jitter),
        timeout=settings.request_timeout.total_seconds(),
        max_in_flight=settings.max_in_flight_per_webhook,
        user_agent=settings.user_agent,
        rules=HealthRules(disable_after=settings.disable_after),
    )
    rules = AttemptRules(
        margin=settings.lease_margin.total_seconds(),
        connect_timeout=settings.connect_timeout.total_seconds(),
        sample=settings.log_success_sample,
    )
    return EngineSettings(defaults, settings.max_in_flight, settings.lease.total_seconds(), rules)


def _build_upkeep(basics: Basics, ingestor: Ingestor, role: DeliverRole | None) -> Upkeep:
    settings, database, telemetry, tell = (
        basics.configuration.settings,
        basics.database,
        basics.telemetry,
        basics.tell,
    )
    batches, partitions = BatchUpkeep(database), Partitions(database)
    gauging = QueueGauging(QueueLook(database), partitions, partial(_publish, telemetry))
    total = sum(step.total_seconds() for step in settings.retry_schedule)
    release = Release(Holds(database, total), WebhookCatalog(database, basics.sealer), telemetry, _waking(basics, role))
    keeping = Keeping(settings.retention_attempts, settings.retention_messages)
    loops = (
        Loop("settle", 0.1, Settle(batches, ingestor).run_once),
        Loop("rescue", 1.0, Rescue(DeliveryStore(database), basics.clock, telemetry).run_once),
        Loop("release", 5.0, release.run_once),
        Loop("undecryptable", 60.0, release.retry_undecryptable),
        Loop("reconcile", 10.0, Reconcile(batches, telemetry).run_once),
        Loop("gauges", 5.0, gauging.run_once),
        Loop("partitions", 3600.0, PartitionUpkeep(partitions, keeping, tell).run_once),
    )
    return Upkeep(LeaderLock(settings.listen_url.get_secret_value()), loops, tell, gauging.lead)


def _waking(basics: Basics, role: DeliverRole | None) -> Callable[[], None]:
    def wake() -> None:
        if role is not None:
            role.handoff.wake()
        basics.waker.wake()

    return wake


def _publish(telemetry: Telemetry, values: Mapping[str, Any] | None) -> None:
    telemetry.publish_queue(QueueState(**values) if values is not None else None)


# Ingest


def _build_ingestor(basics: Basics, role: DeliverRole | None) -> Ingestor:
    settings, wake = basics.configuration.settings, basics.waker.wake
    profiles = load_profiles([settings.profiles_dir] if settings.profiles_dir else [])
    one_shots = OneShots(basics.sealer, basics.policy, lambda: f"whk_{basics.rng.token(16).hex()}")
    return Ingestor(
        PostgresIngestStore(basics.database, RoutingCopy(), one_shots),
        profiles,
        Announcer(profiles, settings.max_body_bytes, Arrivals(role.handoff, wake) if role else NoEngine(wake)),
        Settling(settings.batch_settle_seconds, settings.cancel_grace),
        basics.telemetry,
    )


def _build_reader(basics: Basics) -> Reader:
    settings = basics.configuration.settings
    return Reader(
        Parser(load_profiles([settings.profiles_dir] if settings.profiles_dir else [])),
        basics.clock,
        notify_max_age=settings.notify_max_age,
        retention_state=settings.retention_state,
        on_bug=lambda error: basics.log.error("parser_bug", exc_info=error),
    )


def _build_ingest(basics: Basics, ingestor: Ingestor, checks: dict[str, Any]) -> list[Worker]:
    settings, options = basics.configuration.settings, _kafka_options(basics.configuration)
    wake_mirror: list[Callable[[], None]] = []
    worker = KafkaIngest(
        lambda: Consumer(options),
        _build_reader(basics),
        ingestor,
        OffsetStore(basics.database),
        basics.telemetry,
        clock=basics.clock,
        rng=basics.rng,
        heartbeats=basics.heartbeats,
        tell=basics.log.warning,
        on_dead_letter=lambda: [wake() for wake in wake_mirror],
    )
    checks["database"] = basics.database.answers
    checks["kafka"] = worker.kafka_answers
    if not settings.kafka_dlq_topic:
        return [worker]
    letters = DeadLetters(basics.database)
    mirror = DeadLetterMirror(
        letters, lambda: Producer(options, settings.kafka_dlq_topic), worker.instance, basics.log.warning
    )
    wake_mirror.append(mirror.wake)
    return [worker, mirror]


def _kafka_options(configuration: Configuration) -> KafkaOptions:
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


# API


async def _open_api(stack: AsyncExitStack, basics: Basics, ingestor: Ingestor) -> int:
    settings = basics.configuration.settings
    parts = Parts(
        basics.database,
        _build_registry(basics),
        basics.clock,
        ApiLimits(
            reads=settings.limit_reads,
            writes=settings.limit_writes,
            tests_per_webhook=settings.limit_tests,
            max_webhooks_per_tenant=settings.max_webhooks_per_tenant,
        ),
        basics.configuration.secret("operator_key").get,
        EventRequests(_build_reader(basics), ingestor, basics.telemetry),
    )
    runner = web.AppRunner(build_api(parts), access_log=None, handle_signals=False, shutdown_timeout=3.0)
    await runner.setup()
    stack.push_async_callback(runner.cleanup)
    await web.TCPSite(runner, settings.api_host, settings.api_port).start()
    return int(runner.addresses[0][1])


def _build_registry(basics: Basics) -> Registry:
    settings = basics.configuration.settings
    defaults = WebhookDefaults(
        tuple(int(step.total_seconds()) for step in settings.retry_schedule),
        settings.request_timeout.total_seconds(),
        settings.max_in_flight_per_webhook,
    )
    return Registry(
        basics.sealer, lambda: basics.policy, defaults, basics.clock, basics.rng, settings.max_webhooks_per_tenant
    )
