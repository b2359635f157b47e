"""The state of the whole queue, which one process at a time knows: the upkeep leader.

Belongs here: the gauges it publishes. Other processes, and a leader that stepped down, expose none of them, so that no
dashboard adds a number up twice. Does not belong here: how the numbers are found (``service.upkeep``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from service.telemetry.labels import WEBHOOK_STATES

_TEXTS = {
    "deliveries_pending": "Deliveries waiting for an attempt, retries included.",
    "deliveries_held": "Deliveries held: paused, disabled, no signing key, undecryptable, internal error.",
    "oldest_due_seconds": "How long the oldest due delivery has been due; 0 when none is.",
    "breakers_open": "Webhooks whose breaker is open or half open.",
    "partitions_ahead": "Periods for which partitions exist beyond the current one, of the table that has fewest.",
    "oldest_transaction_seconds": "Age of the oldest transaction in the database.",
}


@dataclass(frozen=True, slots=True)
class QueueState:
    """One look at the queue. ``webhooks`` counts by state: enabled, paused, disabled."""

    deliveries_pending: int = 0
    deliveries_held: int = 0
    oldest_due_seconds: float = 0.0
    breakers_open: int = 0
    partitions_ahead: int = 0
    oldest_transaction_seconds: float = 0.0
    webhooks: Mapping[str, int] = field(default_factory=dict)


class QueueGauges(Collector):
    """Exposes the last published state, or nothing."""

    def __init__(self) -> None:
        self.state: QueueState | None = None

    def describe(self) -> Iterator[Metric]:
        """All families, without samples."""
        for family in _families(QueueState()):
            family.samples.clear()
            yield family

    def collect(self) -> Iterator[Metric]:
        """All families of the last state; none when nothing is published."""
        return iter(()) if self.state is None else _families(self.state)


def _families(state: QueueState) -> Iterator[Metric]:
    for name, text in _TEXTS.items():
        yield GaugeMetricFamily(f"webhookd_{name}", text, value=getattr(state, name))
    webhooks = GaugeMetricFamily("webhookd_webhooks", "Registered webhooks.", labels=["state"])
    for word in WEBHOOK_STATES:
        webhooks.add_metric([word], state.webhooks.get(word, 0))
    yield webhooks
