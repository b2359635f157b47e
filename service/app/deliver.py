"""The deliver role: sender, engine and upkeep, from the settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

from service.app.basics import Basics, build_profiles, build_registry, kafka_options
from service.delivery.assembly import DeliverRole, EnginePorts, EngineSettings, build_deliver_role
from service.delivery.attempting import AttemptRules
from service.delivery.entries import SendingDefaults
from service.domain.health import HealthRules
from service.domain.operational import OperationalEvent, build_operational_body
from service.domain.schedule import Schedule
from service.domain.targets import parse_url
from service.ingest.applying import Ingestor
from service.ingest.bodies import encode_json
from service.ingest.broker import BrokerUnavailable, Producer
from service.lifecycle import Worker, beat, raise_descriptor_limit
from service.ports import StoreUnavailable
from service.sender import HttpSender, SenderLimits, build_tls_context
from service.sender.dns import AresLookup
from service.sender.pool import PoolLimits
from service.sender.proxy import follow_proxy
from service.store.admin_upkeep import AdminUpkeep, Kept
from service.store.batch_upkeep import BatchUpkeep
from service.store.catalog import WebhookCatalog
from service.store.deliveries import DeliveryStore
from service.store.gauges import QueueLook
from service.store.health import HealthKeeping
from service.store.holds import Holds
from service.store.leadership import LeaderLock
from service.store.listening import NotificationListener
from service.store.operational import OperationalStore
from service.store.partitions import Partitions
from service.telemetry import QueueState, Telemetry
from service.upkeep.gauges import QueueGauging
from service.upkeep.leading import Loop, Upkeep
from service.upkeep.operational import OperationalNews
from service.upkeep.partitions import Keeping, PartitionUpkeep
from service.upkeep.reconciling import Reconcile
from service.upkeep.release import Release
from service.upkeep.rescue import Rescue
from service.upkeep.settling import Settle


async def add_deliver(
    stack: AsyncExitStack, basics: Basics, workers: list[Worker], checks: dict[str, Any]
) -> DeliverRole:
    settings, descriptors = basics.configuration.settings, raise_descriptor_limit()
    sender = HttpSender(
        basics.policy,
        AresLookup(settings.dns_servers),
        build_tls_context(str(settings.ca_file or "")),
        proxy=follow_proxy(basics.configuration.secret("egress_proxy").get),
        limits=SenderLimits(PoolLimits(idle_total=min(PoolLimits().idle_total, descriptors // 4))),
    )
    await stack.enter_async_context(sender)
    ports = EnginePorts(
        clock=basics.clock,
        rng=basics.rng,
        queue=DeliveryStore(basics.database),
        webhooks=WebhookCatalog(basics.database, basics.sealer),
        health=HealthKeeping(basics.database),
        listener=NotificationListener(basics.configuration.listen_url),
        sender=sender,
        heartbeats=basics.heartbeats,
        observer=basics.telemetry,
        tell=basics.tell,
        spans=basics.spans,
    )
    role = build_deliver_role(ports, _engine_settings(basics, descriptors))
    basics.telemetry.follow("deliveries_in_flight", lambda: float(role.slots.in_flight))
    basics.telemetry.follow("outcomes_unrecorded", lambda: float(role.recorder.unrecorded))
    checks["database"] = basics.database.answers
    workers.append(role.engine)
    return role


def _engine_settings(basics: Basics, descriptors: int) -> EngineSettings:
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
    slots = max(1, min(settings.max_in_flight, descriptors // 2))
    if slots < settings.max_in_flight:
        basics.log.warning("max_in_flight_capped", slots=slots, descriptors=descriptors)
    return EngineSettings(defaults, slots, settings.lease.total_seconds(), rules)


def build_upkeep(basics: Basics, ingestor: Ingestor, role: DeliverRole | None) -> Upkeep:
    """Build the named loops, which one process at a time runs."""
    settings, database, telemetry = basics.configuration.settings, basics.database, basics.telemetry
    batches, partitions = BatchUpkeep(database), Partitions(database)
    gauging = QueueGauging(QueueLook(database), partitions, partial(_publish, telemetry))
    total = Schedule(settings.retry_schedule).total.total_seconds()
    readable, on_due = WebhookCatalog(database, basics.sealer), _waking(basics, role)
    release = Release(Holds(database, total), readable, telemetry, basics.tell, on_due)
    keeping = Keeping(settings.retention_attempts, settings.retention_messages)
    loops = (
        Loop("settle", 0.1, Settle(batches, ingestor).run_once),
        Loop("rescue", 1.0, Rescue(DeliveryStore(database), basics.clock, telemetry).run_once),
        Loop("release", 5.0, release.run_once),
        Loop("undecryptable", 60.0, release.retry_undecryptable),
        Loop("reconcile", 10.0, Reconcile(batches, telemetry).run_once),
        Loop("gauges", 5.0, gauging.run_once),
        Loop("partitions", 3600.0, PartitionUpkeep(partitions, keeping, basics.tell).run_once),
        *_admin_loops(basics),
    )
    return Upkeep(LeaderLock(basics.configuration.listen_url), loops, basics.heartbeats, basics.tell, gauging.lead)


def _admin_loops(basics: Basics) -> tuple[Loop, ...]:
    settings = basics.configuration.settings
    kept = Kept(settings.retention_state, settings.retention_messages)
    count_messages = partial(basics.telemetry.messages, "none", renotified=False)
    admin = AdminUpkeep(
        basics.database,
        build_registry(basics),
        build_profiles(basics),
        kept,
        on_made=lambda rerun: basics.telemetry.messages("job", renotified=rerun),
        on_pruned=lambda pruned: basics.tell("state_pruned", **pruned),
    )
    news = OperationalStore(basics.database, encode_json, lambda made: count_messages(count=made))
    topic = (Loop("operational_topic", 5.0, OperationalNews(news, "topic", partial(_send, basics)).run_once),)
    return (
        Loop("replays", 1.0, admin.advance_replays),
        Loop("roll_up", 60.0, admin.roll_up),
        Loop("prune", 60.0, admin.prune),
        Loop("operational", 5.0, OperationalNews(news, "subscribers").run_once),
        *(topic if settings.operational_topic else ()),
    )


async def _send(basics: Basics, events: Sequence[OperationalEvent]) -> None:
    """Write operational events to their topic; a broker that is away is tried again, like a database that is."""
    producer = Producer(kafka_options(basics.configuration), basics.configuration.settings.operational_topic)
    try:
        await producer.open()
        for event in events:
            beat()
            headers = (("webhook-id", event.message_id.encode()),)
            await producer.send(event.tenant_id.encode(), build_operational_body(event, encode_json), headers)
    except BrokerUnavailable as error:
        raise StoreUnavailable(str(error)) from error
    finally:
        await producer.close(1.0)


def _waking(basics: Basics, role: DeliverRole | None) -> Callable[[], None]:
    def wake() -> None:
        if role is not None:
            role.handoff.wake()
        basics.waker.wake()

    return wake


def _publish(telemetry: Telemetry, values: Mapping[str, Any] | None) -> None:
    telemetry.publish_queue(QueueState(**values) if values is not None else None)
