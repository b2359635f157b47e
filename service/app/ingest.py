"""The ingest role: the transaction, and the Kafka worker around it, from the settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from service.app.basics import Basics, build_profiles, kafka_options
from service.delivery.arrivals import Arrivals, NoEngine
from service.delivery.assembly import DeliverRole
from service.domain.batches import Settling
from service.ingest.announcing import Announcer
from service.ingest.applying import Ingestor
from service.ingest.broker import Consumer, Producer
from service.ingest.lines import LineRules, TransactionLines
from service.ingest.mirror import DeadLetterMirror
from service.ingest.parsing import Parser
from service.ingest.reading import Reader
from service.ingest.worker import KafkaIngest
from service.lifecycle import Worker
from service.store.dead_letters import DeadLetters
from service.store.ingesting import PostgresIngestStore
from service.store.offsets import OffsetStore
from service.store.routing import OneShots, RoutingCopy


def build_ingestor(basics: Basics, role: DeliverRole | None) -> Ingestor:
    settings, wake = basics.configuration.settings, basics.waker.wake
    profiles = build_profiles(basics)
    handoff = Arrivals(role.handoff, wake) if role else NoEngine(wake)
    one_shots = OneShots(basics.sealer, basics.policy, lambda: f"whk_{basics.rng.token(16).hex()}")
    return Ingestor(
        PostgresIngestStore(basics.database, RoutingCopy(), one_shots),
        profiles,
        Announcer(profiles, settings.max_body_bytes, handoff, basics.spans),
        Settling(settings.batch_settle_seconds, settings.cancel_grace),
        basics.telemetry,
        _build_lines(basics),
        basics.spans,
    )


def _build_lines(basics: Basics) -> TransactionLines:
    settings = basics.configuration.settings
    rules = LineRules(settings.log_success_sample, everything=settings.log_level == "debug")
    find_trace_id = basics.spans.find_trace_id if basics.spans else lambda: None
    return TransactionLines(basics.log.info, basics.log.debug, basics.clock, basics.rng, rules, find_trace_id)


def build_reader(basics: Basics) -> Reader:
    settings = basics.configuration.settings
    return Reader(
        Parser(build_profiles(basics)),
        basics.clock,
        notify_max_age=settings.notify_max_age,
        retention_state=settings.retention_state,
        on_bug=partial(_tell_bug, basics),
    )


def _tell_bug(basics: Basics, error: Exception) -> None:
    basics.telemetry.own_fault("internal_error")
    basics.log.error("parser_bug", exc_info=error)


def build_ingest(basics: Basics, ingestor: Ingestor, checks: dict[str, Any]) -> list[Worker]:
    settings, options = basics.configuration.settings, kafka_options(basics.configuration)
    wake_mirror: list[Callable[[], None]] = []
    worker = KafkaIngest(
        lambda: Consumer(options),
        build_reader(basics),
        ingestor,
        OffsetStore(basics.database),
        basics.telemetry,
        clock=basics.clock,
        rng=basics.rng,
        heartbeats=basics.heartbeats,
        tell=_tell_by_weight(basics),
        on_dead_letter=lambda: [wake() for wake in wake_mirror],
        spans=basics.spans,
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


def _tell_by_weight(basics: Basics) -> Callable[..., object]:
    """Lines that somebody must act on are errors, the ordinary course of things is information."""
    log = basics.log

    def record_failed(event: str, **fields: Any) -> None:
        basics.telemetry.own_fault("internal_error")
        log.error(event, **fields)

    weighed: dict[str, Callable[..., object]] = {
        "record_failed": record_failed,
        "record_unreadable": log.error,
        "missed_records": log.error,
        "partitions_assigned": log.info,
        "database_back": log.info,
    }

    def tell(event: str, **fields: Any) -> object:
        write: Callable[..., object] = weighed.get(event, log.warning)
        return write(event, **fields)

    return tell
