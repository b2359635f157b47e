"""From ingest to the wire without a claim: deliveries are inserted already leased to this process, and sent from memory.

Belongs here: reserving room before the commit, and taking the deliveries after it. Does not belong here: the insert
(``service.store.queueing``) and whether a delivery may be sent at all (``attempting``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from service.delivery.catalog import Catalog
from service.delivery.claiming import Claimer, TokenSource, draw_token
from service.delivery.instants import DatabaseClock, Monotonic, instant
from service.delivery.ready import Lease, ReadyDelivery
from service.delivery.recording import Recorder
from service.delivery.slots import Slots

MAX_ARRIVALS: Final = 2_000  # deliveries that wait until their webhook is loaded


class LocalHandoff:
    """What the ingest transaction of the same process calls.

    ``reserve`` before the insert, once a delivery; then either ``push`` after the commit, for deliveries that went in
    with the lease (and only then), or ``cancel``. A delivery that got no lease goes in without one: ``wake`` after the
    commit, and it comes back through a claim.
    """

    def __init__(
        self,
        *,
        clock: Monotonic,
        instants: DatabaseClock,
        rng: TokenSource,
        catalog: Catalog,
        slots: Slots,
        claimer: Claimer,
        recorder: Recorder,
    ) -> None:
        self._clock = clock
        self._instants = instants
        self._rng = rng
        self._catalog = catalog
        self._slots = slots
        self._claimer = claimer
        self._recorder = recorder
        self.arrivals: list[ReadyDelivery] = []
        self.may_send: Callable[[], bool] = lambda: False
        self.on_ready: Callable[[], object] = lambda: None
        self.on_arrival: Callable[[], object] = lambda: None
        self.on_due: Callable[[], object] = lambda: None

    def reserve(self, webhook_key: int, lane: int, tenant_id: str) -> Lease | None:
        """Room and a lease for one delivery; None when it has to be claimed like any other.

        That is so when the lane has older deliveries in the queue, a rate limit or no room, when its webhook is not well
        or paused by an operator, and when this process may not send now. Whether the delivery has to wait for an older
        one of its work shows when it is inserted: then it goes in without the lease.
        """
        entry = self._catalog.find(webhook_key)
        barred = entry is not None and (
            entry.troubled or entry.rate_limit is not None or self._catalog.pauses.match(entry)
        )
        if barred or not self.may_send() or len(self.arrivals) >= MAX_ARRIVALS:
            self._claimer.mark_behind(lane)
            return None
        if self._claimer.is_behind(lane) or not self._slots.reserve(lane, tenant_id, entry.terms if entry else None):
            self._claimer.mark_behind(lane)
            return None
        lease = self._claimer.lease
        return Lease(
            token=draw_token(self._rng),
            until=instant(self._instants.epoch() + lease),
            expires=self._clock.monotonic() + lease,
            lane=lane,
        )

    def push(self, row: ReadyDelivery) -> None:
        """Send a delivery whose insert, with its lease, has been committed."""
        self._slots.unreserve(row.lane)
        if not self.may_send():
            self._recorder.release(row)
            return
        entry = self._catalog.find(row.webhook_key)
        if entry is None or entry.revision < row.revision:
            self.arrivals.append(row)
            self.on_arrival()
            return
        self._claimer.let_one_in(row, self._clock.monotonic())
        self.on_ready()

    def cancel(self, lease: Lease) -> None:
        """Give reserved room back: the delivery was not inserted, or not with this lease."""
        self._slots.unreserve(lease.lane)

    def wake(self) -> None:
        """A delivery without a lease is due since a commit."""
        self.on_due()
