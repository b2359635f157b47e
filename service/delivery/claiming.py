"""Claiming: leasing due deliveries a few per lane, and letting in what may be sent.

Belongs here: which lanes are claimed from and how much, renewing and handing back leases. Does not belong here: when to
claim (``engine``) and the statement (``service.store``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, Protocol

from service.delivery.attempting import Attempts
from service.delivery.catalog import Catalog
from service.delivery.crowding import Crowd
from service.delivery.instants import Monotonic
from service.delivery.observer import Observer
from service.delivery.ready import ReadyDelivery
from service.delivery.recording import Recorder
from service.delivery.scanning import Scan
from service.delivery.slots import Slots

PER_CLAIM: Final = 500
PER_UNKNOWN_LANE: Final = 4
LANES_PER_CLAIM: Final = 500
FULL_LEASES: Final = 2.0


class TokenSource(Protocol):
    """Where fencing tokens come from."""

    def token(self, size: int) -> bytes:
        """``size`` bytes that nobody can guess."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """What is wanted: deliveries of lanes after ``after``, as many of each as ``rooms`` says, else ``default``.

    At most ``lane_limit`` lanes are looked at and ``limit`` deliveries leased, for ``lease`` seconds, which end at the
    monotonic instant ``expires``.
    """

    after: int
    lane_limit: int
    rooms: Mapping[int, int]
    default: int
    limit: int
    token: int
    lease: float
    expires: float


@dataclass(frozen=True, slots=True)
class Claimed:
    """What was leased. ``ends_at`` is the lane after which the scan is to go on, None when it saw the last one."""

    rows: list[ReadyDelivery]
    ends_at: int | None


class ClaimStore(Protocol):
    """Where deliveries wait. Every method may raise StoreUnavailable or Conflict."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease due deliveries."""

    async def renew(self, rows: Collection[ReadyDelivery], lease: float) -> set[int]:
        """Renew leases that are still ours and unflagged; return the delivery ids of those."""

    async def find_wait(self) -> float | None:
        """Seconds until the next delivery becomes due that is not due yet."""


def draw_token(rng: TokenSource) -> int:
    """A fencing token: 62 random bits, so that no two claims share one."""
    return int.from_bytes(rng.token(8), "big") >> 2


class Claimer:
    """Brings due deliveries into the slots. One claim at a time.

    ``took`` is how many the present round over all lanes has leased, ``passed`` how many lanes without room it has gone
    past.
    """

    def __init__(
        self,
        *,
        store: ClaimStore,
        clock: Monotonic,
        rng: TokenSource,
        catalog: Catalog,
        slots: Slots,
        attempts: Attempts,
        recorder: Recorder,
        observer: Observer,
        lease: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._rng = rng
        self._catalog = catalog
        self._slots = slots
        self._attempts = attempts
        self._recorder = recorder
        self._observer = observer
        self.lease = lease
        self.took = 0
        self.passed = 0
        self._scan = Scan()
        self._shed: dict[Crowd, set[int]] = {}

    async def claim(self) -> bool:
        """Claim once. True when the round over all lanes goes on. Raises StoreUnavailable or Conflict."""
        for crowd in self._find_eased():
            del self._shed[crowd]
        limit = min(PER_CLAIM, self._slots.buffer.free)
        if limit <= 0 or self._catalog.pauses.everything:
            self.took = self.passed = 0
            return False
        self._scan.begin()
        request = self._build_request(limit)
        claimed = await self._store.claim(request)
        self._observer.deliveries_claimed(len(claimed.rows))
        lanes = [row.lane for row in claimed.rows]
        more = self._scan.note(lanes, claimed.ends_at, limit, request.rooms, request.default)
        self.took, self.passed = self._scan.took, list(request.rooms.values()).count(0)
        await self.let_in(claimed.rows, shed=True)
        return more

    async def let_in(self, rows: Sequence[ReadyDelivery], *, shed: bool = False) -> None:
        """Put leased deliveries into the slots, or on their way back if their webhook is not to be sent to.

        With ``shed`` those of lanes that have had their part of the buffer go back, too.
        """
        unknown = [row.webhook_key for row in rows if self._is_unknown(row)]
        if unknown:
            await self._catalog.reload(set(unknown))
            self._catalog.close_lanes()
        now = self._clock.monotonic()
        for row in rows:
            if not (shed and self._shed_one(row)):
                self.let_one_in(row, now)

    def let_one_in(self, row: ReadyDelivery, now: float) -> None:
        """The same at the monotonic instant ``now`` for one delivery whose webhook is known."""
        entry = self._catalog.find(row.webhook_key)
        if entry is None or not self._attempts.admit(row, entry):
            if entry is None:
                self._recorder.release(row)
            return
        row.revision = row.revision or entry.revision
        row.waited_for_limits = row.waited_for_limits or self.is_behind(row.lane)
        row.ready = now
        self._slots.add(row, entry.terms)

    async def keep_leases(self) -> None:
        """Renew the leases of waiting deliveries that have run half, and hand back what has waited for long."""
        now = self._clock.monotonic()
        long_ago = now - FULL_LEASES * self.lease
        self.hand_back(self._slots.withdraw(lambda row: row.ready < long_ago))
        aging = [row for row in self._slots.list_waiting() if row.expires - now < self.lease / 2]
        if aging:
            kept = await self._store.renew(aging, self.lease)
            for row in aging:
                row.expires = now + self.lease if row.delivery_id in kept else float("-inf")
        self.hand_back(self._slots.withdraw(lambda row: row.expires < now))  # flagged, or not ours any more

    def hand_back(self, rows: Iterable[ReadyDelivery]) -> None:
        """Give up leases of deliveries that were not attempted."""
        for row in rows:
            self._recorder.release(row)

    def is_behind(self, lane: int) -> bool:
        """Whether older deliveries of a lane are likely to wait in the database."""
        return self._scan.is_behind(lane)

    def mark_behind(self, lane: int) -> None:
        """A delivery of this lane goes into the database without a lease."""
        self._scan.mark(lane)

    def wants_more(self, lane: int) -> bool:
        """Whether there is room again for deliveries that were left in the database, of this lane or one like it."""
        return (self.is_behind(lane) and self._slots.has_room(lane)) or bool(self._find_eased())

    def _shed_one(self, row: ReadyDelivery) -> bool:
        """Give a delivery back if its lane's kind, or its tenant, has had its part of the buffer."""
        entry = self._catalog.find(row.webhook_key)
        crowd = self._slots.find_crowd(row, entry.terms) if entry is not None else None
        if crowd is None:
            return False
        self._shed.setdefault(crowd, set()).add(row.lane)
        self._recorder.release(row)
        return True

    def _find_eased(self) -> list[Crowd]:
        """Crowds that have gone so far that lanes which were shed for them may be claimed from again."""
        return [crowd for crowd in self._shed if self._slots.buffer.has_eased(crowd)]

    def _is_unknown(self, row: ReadyDelivery) -> bool:
        entry = self._catalog.find(row.webhook_key)
        return entry is None or entry.revision < row.revision

    def _build_request(self, limit: int) -> ClaimRequest:
        rooms = self._slots.list_rooms() | dict.fromkeys(chain(self._catalog.closed_lanes, *self._shed.values()), 0)
        return ClaimRequest(
            after=self._scan.after,
            lane_limit=LANES_PER_CLAIM,
            rooms=rooms,
            default=min(PER_UNKNOWN_LANE, self._slots.buffer.per_lane),
            limit=limit,
            token=draw_token(self._rng),
            lease=self.lease,
            expires=self._clock.monotonic() + self.lease,
        )
