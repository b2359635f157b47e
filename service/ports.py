"""What crosses between the use cases and the edges, shared by more than one of them.

Belongs here: plain records of what is to be written or was read; tuples, since one is made per delivery. A protocol
with one user lives next to it instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple, Protocol


class StoreUnavailable(Exception):
    """The database cannot answer now; whoever asked backs off and asks again."""


class Conflict(Exception):
    """Another transaction came between; the whole transaction is to be run again."""


class Tell(Protocol):
    """One log line."""

    def __call__(self, event: str, /, **fields: object) -> object:
        """Write it: an event's name and its fields."""


class NewMessage(NamedTuple):
    """One message to store.

    ``scope`` is ``batch``, ``job``, or ``none`` for tests and operational messages; ``source`` the profile's name (or
    ``webhookd``); ``body`` is signed and sent as it is. ``renotified``: a copy under another id, made on request.
    ``trace`` is the context that attempts continue (``service.domain.traces``).
    """

    message_id: str
    tenant_id: str
    type: str
    scope: str
    batch_key: int | None
    job_id: str | None
    generation: int
    source: str
    finished_at: datetime
    body: bytes
    renotified: bool = False
    trace: str | None = None


class NewDelivery(NamedTuple):
    """One message for one webhook, to be queued.

    ``group_key`` names the work (batch row key, or ``job_group``): within it and a webhook, at most one delivery is on
    the wire and a newer one supersedes the older; None: there are no others. ``held`` is the reason for a delivery that
    starts ``held`` (``paused``, ``disabled``, ``no_signing_key``), None for one that is due now. ``extra`` is a word of
    ``store.codes.Extra``. ``fresh``: nothing was ever queued for this work, so there is nothing to supersede. The lease
    is set for one that is sent from memory by this process.
    """

    tenant_id: str
    webhook_key: int
    lane: int
    message_id: str
    body_at: datetime
    type: str
    scope: str
    group_key: int | None
    batch_key: int | None
    job_id: str | None
    generation: int
    held: str | None = None
    extra: str = "ordinary"
    fresh: bool = False
    lease_token: int | None = None
    lease_until: datetime | None = None


class QueuedDelivery(NamedTuple):
    """A delivery as it was queued: its id and whether it is due now (not held, not waiting for another)."""

    delivery_id: int
    webhook_key: int
    message_id: str
    due: bool


class Freed(NamedTuple):
    """Leases that were taken off: how many, and of them, by state, those whose delivery has ended by its flag."""

    leases: int
    ended: Mapping[str, int]


class HandedOver(NamedTuple):
    """A delivery that was queued already leased to this process, to be sent from memory after the commit.

    ``lease`` is what the reservation gave; nobody but the delivery engine looks into it.
    """

    delivery: NewDelivery
    delivery_id: int
    body: bytes
    created_at: datetime
    lease: Any
    trace: str | None = None
