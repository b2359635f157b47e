"""``Telemetry``: one object per process with a method for everything that is counted.

Belongs here: the metrics of chapter 6 by their exact names, their label sets started at 0, and the text they are
exposed as. Use cases declare protocols with the few methods they call. Does not belong here: how a series is kept
(``series``), which label values exist (``labels``).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Sequence
from datetime import timedelta
from itertools import accumulate, product
from typing import Literal, NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.exposition import choose_encoder

from service import __version__
from service.domain.attempts import Outcome, OutcomeClass
from service.telemetry import labels
from service.telemetry.queue import QueueGauges, QueueState
from service.telemetry.series import CountedSeries, HotCounter, HotHistogram, TimedSeries

ProcessGauge = Literal[
    "deliveries_in_flight",
    "outcomes_unrecorded",
    "event_loop_lag_seconds",
    "db_pool_size",
    "db_pool_in_use",
    "clock_skew_seconds",
]
_GAUGES: dict[ProcessGauge, str] = {
    "deliveries_in_flight": "Attempts under way in this process.",
    "outcomes_unrecorded": "Outcomes of this process that wait to be written.",
    "event_loop_lag_seconds": "Worst delay of the event loop in the last minute.",
    "db_pool_size": "Open database connections; 0 while the database cannot be reached.",
    "db_pool_in_use": "Database connections in use.",
    "clock_skew_seconds": "This machine's clock minus the database's.",
}
_FINE = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
_MINUTES = (10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0)
_ATTEMPT = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0)

_disable_created_series: Callable[[], None] = disable_created_metrics


class _AttemptSeries(NamedTuple):
    """The series of one outcome: counters by hundreds of the status, and the duration."""

    counts: dict[int, CountedSeries]
    duration: TimedSeries


class Telemetry:
    """All metrics of one process, in a registry of its own."""

    def __init__(self, *, request_timeout: timedelta, retry_schedule: Sequence[timedelta]) -> None:
        """The timeout and the sums of the schedule's steps become bucket boundaries."""
        _disable_created_series()  # a `_created` series beside every one of ours tells nobody anything
        self.registry = CollectorRegistry()
        self._queue = QueueGauges()
        self.registry.register(self._queue)
        self._build_delivery(request_timeout.total_seconds(), retry_schedule)
        self._build_events()
        self._build_process()

    def _build_delivery(self, timeout: float, schedule: Sequence[timedelta]) -> None:
        steps = accumulate(step.total_seconds() for step in schedule)
        self._attempts = self._hot_counter("attempts", "Attempts by outcome.", "outcome", "status_class")
        duration = self._histogram(
            "attempt_duration_seconds", "Connecting to the status line.", (*_ATTEMPT, timeout), "outcome"
        )
        self._by_kind = {
            kind: _AttemptSeries(
                {hundreds: self._count(kind, hundreds) for hundreds in labels.usual_hundreds(kind)}, duration.bind(kind)
            )
            for kind in OutcomeClass
        }
        self._latency = self._plain_histogram(
            "delivery_latency_seconds", "Finish to accepted by the receiver.", (*_FINE, *steps)
        )
        self._first_delay = self._plain_histogram(
            "first_attempt_delay_seconds",
            "Commit to first POST, without waits for the webhook's own limits.",
            (*_FINE, *_MINUTES),
        )
        self._slot_wait = self._plain_histogram(
            "slot_wait_seconds", "Ready to POST, waiting for a slot.", (*_FINE, *_MINUTES)
        )
        finished = self._hot_counter("deliveries_finished", "Deliveries that ended.", "state")
        self._finished = {state: finished.bind(state) for state in labels.FINISHED_STATES}
        self._claims = self._counter("claims", "Deliveries claimed.")
        self._expired = self._counter("leases_expired", "Leases that ran out and were rescued.")
        self._disabled = self._counter("webhook_disabled", "Webhooks disabled.")
        self._blocked = self._counter("blocked_address", "Destinations refused for their address.")
        self._faults = self._counter("own_faults", "Attempts not made for a fault of our own.", "kind")
        for kind in labels.OWN_FAULTS:
            self._faults.labels(kind)

    def _build_events(self) -> None:
        events = self._hot_counter("job_events", "Job events by what became of them.", "outcome")
        self._events = {outcome.value: events.bind(outcome) for outcome in labels.EVENT_OUTCOMES}
        self._event_lag = self._plain_histogram(
            "job_event_lag_seconds", "An event's occurred_at to its commit.", (*_FINE, *_MINUTES, 21_600.0, 86_400.0)
        )
        messages = self._hot_counter("messages", "Messages made.", "scope", "renotified")
        self._messages = {
            (scope, again): messages.bind(scope, str(again).lower())
            for scope, again in product(labels.SCOPES, (False, True))
        }
        self._behind = Gauge(
            "webhookd_consumer_records_behind", "Records not read yet.", ["topic", "partition"], registry=self.registry
        )
        self._anomalies = self._counter("event_anomalies", "Oddities in events.", "kind")
        for kind in labels.ANOMALIES:
            self._anomalies.labels(kind)
        self._reconciled = self._counter("reconciled_batches", "Batches whose counters the sweep repaired.")
        self._dead_letters = self._counter("dead_letters", "Records put aside.")

    def _build_process(self) -> None:
        self._gauges = {name: Gauge(f"webhookd_{name}", text, registry=self.registry) for name, text in _GAUGES.items()}
        build = Gauge("webhookd_build_info", "Always 1.", ["version", "python"], registry=self.registry)
        build.labels(__version__, platform.python_version()).set(1)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def attempt(
        self,
        outcome: Outcome,
        *,
        slot_wait: float | None = None,
        first_delay: float | None = None,
        latency: float | None = None,
    ) -> None:
        """All metrics of one attempt; times in seconds.

        ``slot_wait`` is ready to POST until a slot was free; ``first_delay`` commit to first POST, on first attempts
        that did not wait for the webhook's own limits; ``latency`` finish to acceptance, when delivered.
        """
        kind, status = outcome.kind, outcome.status
        series = self._by_kind[kind]
        hundreds = labels.NO_ANSWER if status is None else status // 100
        if hundreds not in series.counts:
            series.counts[hundreds] = self._count(kind, hundreds)
        series.counts[hundreds].inc()
        series.duration.observe(outcome.duration)
        if slot_wait is not None:
            self._slot_wait.observe(slot_wait)
        if first_delay is not None:
            self._first_delay.observe(first_delay)
        if latency is not None:
            self._latency.observe(latency)
        if kind is OutcomeClass.BLOCKED_ADDRESS:
            self._blocked.inc()

    def deliveries_finished(self, state: str, count: int = 1) -> None:
        """Deliveries that ended: ``delivered``, ``failed``, ``superseded`` or ``canceled``."""
        self._finished[state].inc(count)

    def deliveries_claimed(self, count: int) -> None:
        self._claims.inc(count)

    def leases_expired(self, count: int) -> None:
        self._expired.inc(count)

    def webhooks_disabled(self, count: int = 1) -> None:
        self._disabled.inc(count)

    def own_fault(self, kind: str) -> None:
        """A fault of our own; a kind that ``labels.OWN_FAULTS`` does not know counts as ``other``."""
        self._faults.labels(kind if kind in labels.OWN_FAULTS else labels.OTHER).inc()

    def job_events(self, outcome: str, count: int = 1) -> None:
        """Events by outcome, a word of ``EventOutcome``."""
        self._events[outcome].inc(count)

    def job_event_lag(self, seconds: float) -> None:
        """From an event's ``occurred_at`` to the commit of what it did."""
        self._event_lag.observe(seconds)

    def messages(self, scope: str, *, renotified: bool, count: int = 1) -> None:
        """Messages made; ``scope`` is ``batch``, ``job`` or ``none``."""
        self._messages[scope, renotified].inc(count)

    def event_anomalies(self, kind: str, count: int = 1) -> None:
        """Oddities in events; ``kind`` is one of ``labels.ANOMALIES``."""
        if kind not in labels.ANOMALIES:
            raise ValueError(f"{kind} is no kind of event_anomalies_total")
        self._anomalies.labels(kind).inc(count)

    def batches_reconciled(self, count: int) -> None:
        self._reconciled.inc(count)

    def dead_letters(self, count: int) -> None:
        self._dead_letters.inc(count)

    def records_behind(self, topic: str, partition: int, count: int) -> None:
        """Records of an owned partition that are not read yet."""
        self._behind.labels(topic, partition).set(count)

    def partition_lost(self, topic: str, partition: int) -> None:
        """Another process reports on this partition from now on."""
        self._behind.remove(topic, partition)

    def set_gauge(self, name: ProcessGauge, value: float) -> None:
        """A gauge of this process, as known now."""
        self._gauges[name].set(value)

    def follow(self, name: ProcessGauge, read: Callable[[], float]) -> None:
        """A gauge of this process that is read when scraped, in another thread: ``read`` must be cheap and pure."""
        self._gauges[name].set_function(read)

    def publish_queue(self, state: QueueState | None) -> None:
        """The queue's state, from the upkeep leader only; None when it steps down."""
        self._queue.state = state

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition for an ``Accept`` header and its content type. Reads ``/proc``: call it in a thread."""
        encode, content_type = choose_encoder(accept)
        return encode(self.registry), content_type

    def _count(self, kind: OutcomeClass, hundreds: int) -> CountedSeries:
        return self._attempts.bind(kind, labels.status_class(hundreds))

    def _counter(self, name: str, text: str, *label_names: str) -> Counter:
        return Counter(f"webhookd_{name}", text, label_names, registry=self.registry)

    def _hot_counter(self, name: str, text: str, *label_names: str) -> HotCounter:
        return HotCounter(f"webhookd_{name}", text, label_names, self.registry)

    def _histogram(self, name: str, text: str, bounds: Sequence[float], *label_names: str) -> HotHistogram:
        return HotHistogram(f"webhookd_{name}", text, label_names, bounds, self.registry)

    def _plain_histogram(self, name: str, text: str, bounds: Sequence[float]) -> TimedSeries:
        return self._histogram(name, text, bounds).bind()
