"""The engine's graph: which part knows which.

Belongs here: building, so that the composition root and the tests build the same. Does not belong here: opening
anything.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from service.delivery.attempting import AttemptRules, Attempts, Sender
from service.delivery.catalog import Catalog, CatalogStore
from service.delivery.claiming import Claimer, ClaimStore
from service.delivery.engine import Engine, EngineParts, Listener
from service.delivery.entries import SendingDefaults
from service.delivery.handoff import LocalHandoff
from service.delivery.instants import DatabaseClock, Monotonic
from service.delivery.intake import Intake
from service.delivery.observer import Observer
from service.delivery.observing import HealthStore, Observations
from service.delivery.rates import Rates, RateStore
from service.delivery.recording import Recorder, RecordStore
from service.delivery.slots import Slots
from service.delivery.spans import AttemptSpans
from service.lifecycle import Heartbeats, Rng
from service.ports import Tell


class QueueStore(ClaimStore, RecordStore, Protocol):
    """The queue, as claims and recording use it."""


class WebhookHealthStore(HealthStore, RateStore, Protocol):
    """Health and rate limits, which share a row for each webhook."""


@dataclass(frozen=True, slots=True)
class EnginePorts:
    """Everything outside that the engine uses."""

    clock: Monotonic
    rng: Rng
    queue: QueueStore
    webhooks: CatalogStore
    health: WebhookHealthStore
    listener: Listener
    sender: Sender
    heartbeats: Heartbeats
    observer: Observer
    tell: Tell
    spans: AttemptSpans | None = None


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """``lease`` in seconds; it must cover the longest timeout and ``rules.margin`` (the settings check that)."""

    defaults: SendingDefaults
    max_in_flight: int = 2_000
    lease: float = 60.0
    rules: AttemptRules = field(default_factory=AttemptRules)


@dataclass(frozen=True, slots=True)
class DeliverRole:
    """The engine, and what others of the process may use of it."""

    engine: Engine
    intake: Intake
    handoff: LocalHandoff
    recorder: Recorder
    slots: Slots
    catalog: Catalog
    instants: DatabaseClock
    observations: Observations


def build_deliver_role(ports: EnginePorts, settings: EngineSettings) -> DeliverRole:
    """Build the engine's parts and tie them together."""
    instants = DatabaseClock(ports.clock)
    catalog = Catalog(ports.webhooks, settings.defaults, ports.clock, instants)
    slots = Slots(settings.max_in_flight)
    recorder = Recorder(ports.queue, instants, ports.observer, ports.tell)
    observations = Observations(ports.health, catalog, instants, ports.observer, ports.tell)
    attempts = Attempts(
        clock=ports.clock,
        instants=instants,
        rng=ports.rng,
        catalog=catalog,
        slots=slots,
        sender=ports.sender,
        recorder=recorder,
        observations=observations,
        observer=ports.observer,
        tell=ports.tell,
        rules=settings.rules,
        spans=ports.spans,
    )
    claimer = Claimer(
        store=ports.queue,
        clock=ports.clock,
        rng=ports.rng,
        catalog=catalog,
        slots=slots,
        attempts=attempts,
        recorder=recorder,
        observer=ports.observer,
        lease=settings.lease,
    )
    handoff = LocalHandoff(
        clock=ports.clock,
        instants=instants,
        rng=ports.rng,
        catalog=catalog,
        slots=slots,
        claimer=claimer,
        recorder=recorder,
    )
    intake = Intake(
        clock=ports.clock, instants=instants, slots=slots, claimer=claimer, claims=ports.queue, handoff=handoff
    )
    engine = Engine(
        EngineParts(
            clock=ports.clock,
            catalog=catalog,
            slots=slots,
            intake=intake,
            attempts=attempts,
            recorder=recorder,
            observations=observations,
            rates=Rates(ports.health, catalog, slots),
            listener=ports.listener,
            heartbeats=ports.heartbeats,
            tell=ports.tell,
        )
    )
    return DeliverRole(engine, intake, handoff, recorder, slots, catalog, instants, observations)
