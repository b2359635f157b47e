"""What ingest sees of the delivery engine of its own process: room before the commit, deliveries after it.

Belongs here: turning what ingest knows of a delivery into what the engine carries. Does not belong here: whether there
is room (``handoff``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from service.delivery.handoff import LocalHandoff
from service.delivery.ready import Lease, ReadyDelivery
from service.ports import HandedOver, NewDelivery


class NoEngine:
    """For a process without the deliver role: every delivery is left to be claimed. ``wake`` tells the others."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self.wake = wake

    def reserve(self, delivery: NewDelivery) -> Lease | None:  # noqa: ARG002 - the protocol's
        """There is no room here."""
        return None

    def push(self, handed: HandedOver) -> None:
        """Never called: there are no reservations."""

    def cancel(self, reservation: Any) -> None:
        """Never called: there are no reservations."""


class Arrivals:
    """Implements ``ingest.transaction.Handoff`` on a ``LocalHandoff``. ``wake_others`` tells other processes."""

    def __init__(self, handoff: LocalHandoff, wake_others: Callable[[], None]) -> None:
        self._handoff = handoff
        self._wake_others = wake_others

    def reserve(self, delivery: NewDelivery) -> Lease | None:
        """Reserve room for one delivery before it is queued; None: it is queued without a lease, to be claimed."""
        return self._handoff.reserve(delivery.webhook_key, delivery.lane, delivery.tenant_id)

    def push(self, handed: HandedOver) -> None:
        """Send what was queued with its lease and committed."""
        self._handoff.push(_ready(handed))

    def cancel(self, reservation: Any) -> None:
        """Give room back: the delivery was not queued with this lease."""
        self._handoff.cancel(reservation)

    def wake(self) -> None:
        """Say that something is due since a commit."""
        self._handoff.wake()
        self._wake_others()


def _ready(handed: HandedOver) -> ReadyDelivery:
    new, at = handed.delivery, handed.created_at.timestamp()
    return ReadyDelivery(
        token=handed.lease.token,
        expires=handed.lease.expires,
        delivery_id=handed.delivery_id,
        webhook_key=new.webhook_key,
        lane=new.lane,
        tenant_id=new.tenant_id,
        message_id=new.message_id,
        type=new.type,
        generation=new.generation,
        group_key=new.group_key,
        attempts=0,
        created=at,
        first_due=at,
        revision=0,
        body=handed.body,
        trace=handed.trace,
    )
