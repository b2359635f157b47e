"""Claiming: leasing due deliveries a few per lane, and letting in what may be sent.

Belongs here: which lanes are claimed from and how much, renewing and handing back leases. Does not belong here: when to
claim (``engine``) and the statement (``service.store``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from service.delivery.attempting import Attempts
from service.delivery.backlog import LATEST_COMMIT, Backlog
from service.delivery.catalog import Catalog
from service.delivery.crowding import Crowd
from service.delivery.instants import Monotonic
from service.delivery.observer import Observer
from service.delivery.ready import ReadyDelivery
from service.delivery.recording import Recorder
from service.delivery.slots import Slots
from service.ports import StoreUnavailable

PER_CLAIM: Final = 500  # deliveries
PER_UNKNOWN_LANE: Final = 4  # deliveries of a lane that has nothing here yet
LANES_PER_CLAIM: Final = 500
RECENT: Final = 2_000  # deliveries among which a claim everywhere looks for other lanes
LANES_PER_PAGE: Final = 1_000  # of a survey
FIRST_LANE: Final = -(2**63)
EXTRA_ONLY: Final = -1  # as a lane's room: one delivery that is no attempt of the schedule
LONGEST_WAIT: Final = 2.0  # leases; what has waited here for longer goes back, so that another process may send it
SET_ASIDE: Final = 1_000  # deliveries of a shared lane that are looked at to be moved out of it
EXTRA_PER_LANE: Final = 50  # redeliveries and tests that a survey makes due anew


class TokenSource(Protocol):
    """Where fencing tokens come from."""

    def token(self, size: int) -> bytes:
        """``size`` bytes that nobody can guess."""


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Which deliveries are wanted.

    Those of ``lanes``, each from its instant on; and those of other lanes that are found among the first ``recent``
    deliveries that became due at ``since`` or later (0: no other lanes). Of a lane at most ``rooms[lane]``, or
    ``default``; ``EXTRA_ONLY`` asks for one that is no attempt of the schedule. ``limit`` bounds all together. They are
    leased with the fencing ``token`` for ``lease`` seconds, which end at the monotonic instant ``expires``. The other
    instants are seconds since 1970 by the database's clock.
    """

    lanes: Mapping[int, float]
    since: float
    recent: int
    rooms: Mapping[int, int]
    default: int
    limit: int
    token: int
    lease: float
    expires: float

    def find_room(self, lane: int) -> int:
        """How many deliveries of a lane are wanted, scheduled or not."""
        return max(0, self.rooms.get(lane, self.default))


@dataclass(frozen=True, slots=True)
class Claimed:
    """What was leased, ``at`` an instant of the database's clock in seconds since 1970.

    ``found`` are the other lanes that were found, leased from or not; ``cut``: there may be more of them.
    """

    rows: list[ReadyDelivery]
    at: float
    found: list[int]
    cut: bool


@dataclass(frozen=True, slots=True)
class DueLanes:
    """A page of a survey: lanes with something due ``at`` an instant, and since when (seconds since 1970).

    The next page begins after the lane ``ends_at``; None: this is the last one.
    """

    lanes: list[int]
    oldest: list[float]
    at: float
    ends_at: int | None


class ClaimStore(Protocol):
    """Where deliveries wait. Every method may raise StoreUnavailable or Conflict."""

    async def claim(self, request: ClaimRequest) -> Claimed:
        """Lease due deliveries."""

    async def list_lanes(self, after: int, limit: int) -> DueLanes:
        """List those lanes that have something due, of the next ``limit`` lanes after ``after`` that have anything."""

    async def wake_extra(self, lanes: Collection[int], older: float, limit: int) -> None:
        """Make redeliveries and tests of these lanes due now, at most ``limit`` of each lane.

        Only those that have been due for more than ``older`` seconds: claims find them only where they became due lately.
        """

    async def set_aside(self, lane: int, since: float, webhook_keys: Collection[int], limit: int) -> None:
        """Move what is due of these webhooks into lanes of their own, from among the first ``limit`` due in ``lane``."""

    async def renew(self, rows: Collection[ReadyDelivery], lease: float) -> set[int]:
        """Renew leases that are still ours and unflagged; return the delivery ids of those."""

    async def find_wait(self) -> float | None:
        """Seconds until the next delivery becomes due, those that are due already left out; None: there is none."""


def draw_token(rng: TokenSource) -> int:
    """A fencing token: 62 random bits, so that no two claims share one."""
    return int.from_bytes(rng.token(8), "big") >> 2


class Claimer:
    """Brings due deliveries into the slots. One claim at a time.

    Of the last claim: ``took`` is how many deliveries it leased, ``passed`` how many lanes it found that have no room;
    ``cut``: it did not look at all that became due lately, so a survey is wanted. ``asking``: a claim is under way, whose
    leases may be committed already.
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
        self.cut = False
        self.asking = False
        self._backlog = Backlog()
        self._denied: set[Crowd] = set()
        self._unwell: dict[int, set[int]] = {}

    async def claim(self, *, everywhere: bool) -> bool:
        """Claim once, from lanes that are behind or from all; True when another claim at once would bring more.

        Raises StoreUnavailable or Conflict.
        """
        self.took = self.passed = 0
        self.cut = False
        limit = min(PER_CLAIM, self._slots.buffer.free)
        if limit <= 0 or self._catalog.pauses.everything:
            return False
        request = self._build_request(limit, RECENT if everywhere else 0)
        if not everywhere and not request.lanes:
            return False
        self._backlog.begin_claim()
        claimed = await self._claim(request)
        self._observer.deliveries_claimed(len(claimed.rows))
        more = self._take_note(request, claimed)
        await self.let_in(claimed.rows, shed=True)
        await self._set_aside()
        return more

    async def survey(self) -> None:
        """Find all lanes with something due, however long, and extra attempts of lanes that may send nothing else.

        Raises StoreUnavailable or Conflict.
        """
        page = first = await self._store.list_lanes(FIRST_LANE, LANES_PER_PAGE)
        self._backlog.note_survey(page.lanes, page.oldest)
        while page.ends_at is not None:
            page = await self._store.list_lanes(page.ends_at, LANES_PER_PAGE)
            self._backlog.note_survey(page.lanes, page.oldest)
        self._backlog.raise_since(first.at)
        if self._catalog.unwell_lanes:
            await self._store.wake_extra(self._catalog.unwell_lanes, LATEST_COMMIT, EXTRA_PER_LANE)

    async def let_in(self, rows: Sequence[ReadyDelivery], *, shed: bool = False) -> None:
        """Put leased deliveries into the slots, or hand them back if nothing may be sent to their webhook.

        With ``shed``, those whose crowd has used up its part of the buffer go back, too. All of them do if their webhooks
        cannot be loaded: StoreUnavailable or Conflict.
        """
        try:
            await self._load_unknown(rows)
        except BaseException:  # the engine's stop as well: nobody else knows of these leases
            self.hand_back(rows)
            raise
        now = self._clock.monotonic()
        for row in rows:
            if not (shed and row.scheduled and self._shed_one(row)):
                self.let_one_in(row, now)

    def let_one_in(self, row: ReadyDelivery, now: float) -> None:
        """The same for one delivery whose webhook is known; ``now`` is monotonic."""
        entry = self._catalog.find(row.webhook_key)
        if entry is None:
            self._recorder.release(row)
            return
        if entry.troubled and row.lane != row.webhook_key:
            self._leave_shared_lane(row)
        if not self._attempts.admit(row, entry):
            return
        row.revision = row.revision or entry.revision
        row.waited_for_limits = row.waited_for_limits or self.is_behind(row.lane)
        row.ready = now
        self._slots.add(row, entry.terms)

    async def keep_leases(self) -> None:
        """Renew leases that are half over, of deliveries that still wait; hand back what has waited for too long."""
        now = self._clock.monotonic()
        long_ago = now - LONGEST_WAIT * self.lease
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
        """Whether the queue is likely to hold older deliveries of a lane."""
        return lane in self._backlog

    def mark_behind(self, lane: int) -> None:
        """A delivery of this lane goes into the queue without a lease."""
        self._backlog.mark(lane)

    def wants_more(self, lane: int) -> bool:
        """Whether there is room again for what had to stay in the queue, of this lane or of a crowd that was denied."""
        may_claim = self.is_behind(lane) and self._slots.may_claim(lane)
        return may_claim or any(map(self._slots.buffer.has_eased, self._denied))

    def _shed_one(self, row: ReadyDelivery) -> bool:
        """Hand a delivery back if a crowd of its lane has used up its part of the buffer."""
        entry = self._catalog.find(row.webhook_key)
        if entry is None or (entry.troubled and row.lane != row.webhook_key):
            return False
        crowd = self._slots.find_crowd(row, entry.terms)
        if crowd is None:
            return False
        self._denied.add(crowd)
        self._backlog.mark(row.lane)
        self._recorder.release(row)
        return True

    def _leave_shared_lane(self, row: ReadyDelivery) -> None:
        """A one-shot that is not well has a lane of its own: extra attempts use it here, the rest is moved in the queue."""
        if not row.scheduled:
            row.lane = row.webhook_key
            return
        self._backlog.mark(row.webhook_key)
        self._unwell.setdefault(row.lane, set()).add(row.webhook_key)

    async def _set_aside(self) -> None:
        """Move many of such a one-shot's deliveries at once: the next claims need not turn them away one by one."""
        unwell, self._unwell = self._unwell, {}
        for lane, keys in unwell.items():
            since = self._backlog.find_instant(lane)
            if since is not None:
                await self._store.set_aside(lane, since, keys, SET_ASIDE)
                for key in keys:
                    self._backlog.move(key, since)

    async def _load_unknown(self, rows: Iterable[ReadyDelivery]) -> None:
        unknown = {row.webhook_key for row in rows if self._is_unknown(row)}
        if unknown:
            await self._catalog.reload(unknown)
            self._catalog.close_lanes()

    def _is_unknown(self, row: ReadyDelivery) -> bool:
        entry = self._catalog.find(row.webhook_key)
        return entry is None or entry.revision < row.revision

    def _build_request(self, limit: int, recent: int) -> ClaimRequest:
        closed = dict.fromkeys(self._catalog.unwell_lanes, EXTRA_ONLY) | dict.fromkeys(self._catalog.closed_lanes, 0)
        shares = self._slots.share_out(lane for lane, _ in self._backlog if lane not in closed)
        self._denied = shares.denied
        rooms = shares.rooms | closed
        default = min(PER_UNKNOWN_LANE, self._slots.buffer.per_lane)
        roomy = ((lane, since) for lane, since in self._backlog if rooms.get(lane, default) > 0)
        lanes = dict(islice(roomy, LANES_PER_CLAIM))
        if not recent:
            rooms = {lane: rooms[lane] for lane in lanes if lane in rooms}
        return ClaimRequest(
            lanes=lanes,
            since=self._backlog.since,
            recent=recent,
            rooms=rooms,
            default=default,
            limit=limit,
            token=draw_token(self._rng),
            lease=self.lease,
            expires=self._clock.monotonic() + self.lease,
        )

    async def _claim(self, request: ClaimRequest) -> Claimed:
        self.asking = True
        try:
            return await self._store.claim(request)
        except StoreUnavailable:
            self._backlog.forget_instants()
            raise
        finally:
            self.asking = False

    def _take_note(self, request: ClaimRequest, claimed: Claimed) -> bool:
        """Learn which lanes are behind; True when the claim was full, or could not name all lanes that are behind."""
        counts = Counter(row.lane for row in claimed.rows)
        asked = [lane for lane in (*request.lanes, *claimed.found) if request.find_room(lane)]
        full = len(claimed.rows) >= request.limit
        if full:  # lanes after the last one that gave something may not have been looked at
            del asked[1 + max((place for place, lane in enumerate(asked) if lane in counts), default=-1) :]
        emptied = {lane for lane in asked if counts[lane] < request.find_room(lane)}
        if full:
            emptied.difference_update(asked[-1:])
        self._backlog.note_claim(asked, emptied, (lane for lane in claimed.found if lane not in emptied), request.since)
        self.cut = claimed.cut and request.recent > 0
        if request.recent and not claimed.cut:
            self._backlog.note_full_claim(claimed.at)
        self.took, self.passed = len(claimed.rows), sum(not request.find_room(lane) for lane in claimed.found)
        return full or len(request.lanes) == LANES_PER_CLAIM
