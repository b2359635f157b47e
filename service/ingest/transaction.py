"""What ingest asks of the store: one transaction per poll, in the order of the calls below.

Belongs here: the protocol, next to its only user. ``service.store.ingesting`` implements it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from service.domain.batches import Batch
from service.domain.events import JobEvent
from service.domain.jobs import Job
from service.domain.routing import Subscriber
from service.domain.workspace import Workspace
from service.ingest.poll import Partition, Record
from service.ports import HandedOver, NewDelivery, NewMessage, QueuedDelivery


@dataclass(frozen=True, slots=True)
class Tenancy:
    """What routing knows of one tenant: its account webhooks by id, and whether it can sign one-shots."""

    subscribers: Mapping[str, Subscriber] = field(default_factory=dict)
    has_secret: bool = False


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A stored job that came before another one of its subject, and the ``webhook_id`` that it hands on."""

    job_id: str
    webhook_id: str | None


@dataclass(frozen=True, slots=True)
class FinishedDelivery:
    """A delivery that is finished as it is made. ``state`` is ``failed`` or ``superseded``."""

    delivery: NewDelivery
    webhook_id: str
    state: str
    reason: str | None = None


class Retired(NamedTuple):
    """A batch that was deleted, the registration that ended with it, and how many deliveries were canceled."""

    batch: Batch
    webhook_id: str | None
    canceled: int


class IngestTransaction(Protocol):
    """One open transaction. Any method may raise StoreUnavailable, or Conflict: then all of it is run again."""

    @property
    def now(self) -> datetime:
        """The database's instant of the transaction's start."""

    @property
    def finished(self) -> Mapping[str, int]:
        """How many deliveries the transaction has ended, by state."""

    @property
    def owned(self) -> frozenset[Partition]:
        """The partitions whose offsets this transaction stores: those that the poll's owner still owns."""

    async def bury(self, records: Sequence[Record]) -> None:
        """Store dead letters."""

    async def lock(self, events: Sequence[JobEvent]) -> Workspace:
        """Lock and load every aggregate that the events may concern: batches in key order, then jobs."""

    async def lock_settling(self, batch_keys: Sequence[int]) -> Workspace:
        """Lock incarnations whose settle window may be over; each counts as changed."""

    async def find_predecessors(self, jobs: Sequence[tuple[Job, bool]]) -> Mapping[tuple[str, str], Predecessor]:
        """Return the stored job before each one, by (tenant, job); the flag allows "same subject"."""

    async def save(self, workspace: Workspace, messages: Sequence[NewMessage]) -> Mapping[str, datetime]:
        """Write leavers, new batches (which get their keys), all touched jobs and messages of theirs.

        Returns for each message where its body is.
        """

    async def save_batches(self, batches: Iterable[Batch]) -> None:
        """Write batches that are stored already."""

    async def close_finish(self, batch: Batch) -> None:
        """Number the runs that the batch's newest finish is the first to show."""

    async def measure_times(self, batch: Batch) -> None:
        """Compute the extremes of the members' times anew."""

    async def list_members(self, batch: Batch, limit: int) -> list[Job]:
        """Return members, newest finish first."""

    async def list_tenancies(self, tenant_ids: Iterable[str]) -> Mapping[str, Tenancy]:
        """Return what routing knows of each tenant."""

    async def list_batch_webhooks(self, batch_keys: Sequence[int]) -> Mapping[int, Subscriber]:
        """Return the own webhooks of batches that have one."""

    async def list_one_shots(self, urls: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Subscriber]:
        """Return the hidden webhook of each (tenant, URL), made where there is none."""

    async def retire(self, deletions: Sequence[tuple[Batch, datetime]]) -> Sequence[Retired]:
        """Cancel what is left of deleted batches and retire their registrations; return what became of each batch."""

    async def insert_messages(self, messages: Sequence[NewMessage]) -> Mapping[str, datetime]:
        """Store messages; return for each id where its body is."""

    async def list_finished(self, message_ids: Sequence[str]) -> frozenset[tuple[str, int]]:
        """Return the (message, webhook key) pairs whose delivery is finished already."""

    async def enqueue(self, deliveries: Sequence[NewDelivery]) -> list[QueuedDelivery]:
        """Queue deliveries (see ``service.store.queueing``)."""

    async def insert_finished(self, deliveries: Sequence[FinishedDelivery]) -> None:
        """Store deliveries that are finished as they are made."""


class Reservation(Protocol):
    """Room in the delivery engine of this process, as a lease for the row."""

    @property
    def token(self) -> int: ...
    @property
    def until(self) -> datetime: ...


class Handoff(Protocol):
    """The delivery engine of the same process, which sends from memory what was queued leased to it; or nobody."""

    def reserve(self, delivery: NewDelivery) -> Reservation | None:
        """Reserve room for one delivery before it is queued; None: it is queued without a lease, for a claim to find."""

    def push(self, handed: HandedOver) -> None:
        """Send what was queued with its lease and committed."""

    def cancel(self, reservation: Reservation) -> None:
        """Give room back: the delivery was not queued with this lease."""

    def wake(self) -> None:
        """Say that something is due since a commit."""


class IngestStore(Protocol):
    """Opens transactions."""

    def transaction(
        self, events: Sequence[JobEvent] = ..., owner: str = ..., positions: Mapping[Partition, int] = ...
    ) -> AbstractAsyncContextManager[IngestTransaction]:
        """Open one for the events that it may apply; it commits on a clean exit, with the positions that are owned."""
