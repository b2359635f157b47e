"""The parts that the API is built from, and what it asks of those that others make.

Belongs here: protocols declared by their one user, and the numbers that settings give.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from service.lifecycle import Clock
from service.ports import Tell
from service.store.database import Database
from service.store.registry import Registry


@dataclass(frozen=True, slots=True)
class IncomingEvent:
    """One event as it came, in the form of a Kafka record: ``content-type`` and ``ce_…`` headers, the raw value."""

    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()


class EventSink(Protocol):
    """The ingest use case, as ``POST /v1/events`` needs it."""

    async def ingest_events(self, events: Sequence[IncomingEvent], tenant_id: str) -> Sequence[Mapping[str, object]]:
        """Make events of one tenant durable, in order; return one JSON object per event. Raises StoreUnavailable.

        An event of another tenant is refused like a malformed one; neither keeps the others from being stored.
        """
        ...


@dataclass(frozen=True, slots=True)
class ApiLimits:
    """What the API allows itself and others. Rates are per minute.

    A call is answered within ``answer_within``, with 503 if need be; a test send waits for its outcome before, for
    ``test_wait`` at most.
    """

    reads: int = 120
    writes: int = 600
    tests_per_webhook: int = 5
    test_wait: timedelta = timedelta(seconds=32)
    answer_within: timedelta = timedelta(seconds=20)


@dataclass(frozen=True, slots=True)
class Parts:
    """Everything a handler may use."""

    database: Database
    registry: Registry
    clock: Clock
    limits: ApiLimits
    operator_key: Callable[[], str] = field(repr=False)
    tell: Tell
    events: EventSink | None = None
