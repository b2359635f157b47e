"""Outcomes on their way into the database, grouped over a few milliseconds.

Belongs here: what waits to be written, writing it, and trying again while the database is away. Does not belong here:
what is decided (``decisions``) and how it is stored (``service.store``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Final, NamedTuple, Protocol, TypeVar

from service.delivery.decisions import Undelivered, decide_again
from service.delivery.instants import DatabaseClock
from service.delivery.observer import Observer
from service.delivery.ready import ReadyDelivery, Work
from service.domain.attempts import Outcome
from service.domain.deliveries import Reason, Recall
from service.lifecycle import beat, heed
from service.ports import Conflict, Freed, StoreUnavailable, Tell

GATHER: Final = 0.003  # seconds in which outcomes are gathered for one write
LINGER: Final = 0.05  # seconds in which decisions wait for others
ENOUGH: Final = 100  # decisions, which wait no longer
UNRECORDED_LIMIT: Final = 1_000  # outcomes, from which on no attempt starts
PER_WRITE: Final = 1_000  # rows
BACK_OFF: Final = (0.05, 2.0)  # seconds, at first and at most


# A delivery that its receiver accepted, as it is written: delivery id, token, number of the attempt, start in seconds
# since 1970, duration in ms, status, flags with commas between, origin, excerpt of the answer, and whether the webhook's
# revision changed meanwhile. A bare tuple, because one is made for every delivery.
Accepted = tuple[int, int, int, float, int, int | None, str | None, str, bytes | None, bool]


_Row = TypeVar("_Row")


class Refused(NamedTuple):
    """A decision that was not recorded.

    ``ours``: the lease is still ours, but the flag has changed, to what ``recall`` says. Else the lease was lost.
    """

    delivery_id: int
    ours: bool
    recall: Recall | None = None
    recall_reason: Reason | None = None


class Recorded(NamedTuple):
    """What came of a write of decisions: those refused, and how many deliveries became due that had waited for these."""

    refused: list[Refused]
    woken: int = 0


class Release(NamedTuple):
    """A lease to be handed back; ``due`` in seconds since 1970, None: as it was. ``aside``: into its webhook's own lane."""

    delivery_id: int
    token: int
    due: float | None = None
    aside: bool = False


class Hold(NamedTuple):
    """A delivery to be held because its webhook is stopped; if that is not so any more, its lease is handed back."""

    delivery_id: int
    token: int
    webhook_key: int
    reason: Reason


class RecordStore(Protocol):
    """Where outcomes go. Every method may raise StoreUnavailable, or Conflict: then nothing of it was written."""

    async def record_accepted(self, rows: Sequence[Accepted]) -> int:
        """Settle deliveries, whoever holds their lease; return how many became due that had waited for these."""

    async def record_undelivered(self, rows: Sequence[Undelivered]) -> Recorded:
        """Record decisions whose delivery still has the lease and the flag that were decided upon; refuse the others."""

    async def record_lost(self, rows: Sequence[Undelivered]) -> None:
        """Log attempts whose lease was lost; their deliveries stay as they are."""

    async def hold(self, rows: Sequence[Hold]) -> Freed:
        """Hold deliveries of stopped webhooks; return those that were handed back, since theirs is stopped no more."""

    async def release(self, rows: Sequence[Release]) -> Freed:
        """Hand leases back; flagged deliveries become what their flag says."""

    async def wake_passed(self, works: Collection[Work]) -> int:
        """Make deliveries of these works due now that were due before, and that claims have passed by; return how many."""


class Recorder:
    """Takes outcomes at any time and writes them in groups; what cannot be written stays until it can.

    Decisions linger until there are a hundred of them, or for 50 ms: receivers that hang time out one by one, and a
    commit for each would slow all others down. Once a delivery has left the wire, another one of its work may go; claims
    have passed that one by and would not look at it again, so it is made due anew. ``on_written`` is called after each
    group with the number of deliveries that became due by it, ``on_planned`` with the instant of every next attempt.
    """

    def __init__(self, store: RecordStore, instants: DatabaseClock, observer: Observer, tell: Tell) -> None:
        self._store = store
        self._instants = instants
        self._observer = observer
        self._tell = tell
        self._size = PER_WRITE
        self._accepted: list[Accepted] = []
        self._undelivered: list[Undelivered] = []
        self._lost: list[Undelivered] = []
        self._holds: list[Hold] = []
        self._releases: list[Release] = []
        self._works: dict[int, Work] = {}
        self._left: set[Work] = set()
        self._ripe_at = 0.0
        self._wanted = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()
        self.away = False
        self.on_written: Callable[[int], object] = lambda _: None
        self.on_planned: Callable[[datetime], object] = lambda _: None

    @property
    def unrecorded(self) -> int:
        """Outcomes that are not in the database yet."""
        return len(self._accepted) + len(self._undelivered)

    @property
    def open(self) -> bool:
        """Whether attempts may start: the database answers, and not too much waits for it."""
        return not self.away and len(self._accepted) + len(self._undelivered) < UNRECORDED_LIMIT

    @property
    def empty(self) -> bool:
        """Whether everything is written."""
        return self._nothing_else and not self._undelivered

    @property
    def _nothing_else(self) -> bool:
        return not (self._accepted or self._lost or self._holds or self._releases or self._left)

    def accept(self, row: ReadyDelivery, origin: str, outcome: Outcome, started: float, *, stale: bool) -> None:
        """Take a delivery that its receiver accepted."""
        self._accepted.append(
            (
                row.delivery_id,
                row.token,
                row.number,
                started,
                int(outcome.duration * 1_000),
                outcome.status,
                ",".join(sorted(outcome.flags)) if outcome.flags else None,
                origin,
                outcome.excerpt or None,
                stale,
            )
        )
        self._want(row)

    def decide(self, undelivered: Undelivered) -> None:
        """Take a decision about a delivery that was not accepted."""
        if not self._undelivered:
            self._ripe_at = asyncio.get_running_loop().time() + LINGER
        self._undelivered.append(undelivered)
        self._want(undelivered.row)

    def hold(self, row: ReadyDelivery, reason: Reason) -> None:
        """Hold a delivery because its webhook is paused or disabled."""
        self._holds.append(Hold(row.delivery_id, row.token, row.webhook_key, reason))
        self._want(row)

    def release(self, row: ReadyDelivery, due: float | None = None, *, aside: bool = False) -> None:
        """Hand a lease back."""
        self._releases.append(Release(row.delivery_id, row.token, due, aside))
        self._want(row)

    async def wait_empty(self) -> None:
        """Until everything is written, which ``run`` does."""
        await self._written.wait()

    async def run(self) -> None:
        """Write what comes, until cancelled; back off while the database is away."""
        wait = BACK_OFF[0]
        while True:
            await heed(self._wanted)
            await asyncio.sleep(GATHER)
            self._wanted.clear()
            try:
                await self._flush()
            except StoreUnavailable:
                wait = await self._back_off(wait)
            except Exception as error:  # noqa: BLE001 - ending here would lose outcomes, and repeat their attempts
                self._meet_bug(error)
                wait = await self._back_off(wait)
            else:
                self.away, self._size, wait = False, PER_WRITE, BACK_OFF[0]

    async def _back_off(self, wait: float) -> float:
        """Wait, and return how long to wait the next time."""
        self.away = True
        self._wanted.set()
        await asyncio.sleep(wait)
        return min(wait * 2, BACK_OFF[1])

    def _meet_bug(self, error: Exception) -> None:
        """Something cannot be written: from now on write one row at a time, and put one that fails behind the others."""
        self._observer.own_fault("internal_error")
        self._tell("recording_failed", unrecorded=self.unrecorded, exc_info=error)
        if self._size == 1:
            self._accepted.extend(self._pop_first(self._accepted))
            self._undelivered.extend(self._pop_first(self._undelivered))
        self._size = 1

    @staticmethod
    def _pop_first(pile: list[_Row]) -> list[_Row]:
        return [pile.pop(0)] if pile else []

    async def _flush(self) -> None:
        """Write everything but decisions that linger. Raises StoreUnavailable; what was not written is kept."""
        while not self.empty:
            beat()
            lingers = self._find_lingering()
            if lingers and self._nothing_else:
                asyncio.get_running_loop().call_later(lingers, self._wanted.set)
                return
            try:
                woken = await self._write_accepted() + (0 if lingers else await self._write_undelivered())
                await self._write_rest()
                woken += await self._wake_passed()
            except Conflict:
                continue
            self.on_written(woken)
        self._written.set()

    def _find_lingering(self) -> float:
        """Seconds for which the decisions still linger; 0 when they are to be written now."""
        if not self._undelivered or len(self._undelivered) >= ENOUGH:
            return 0.0
        return max(0.0, self._ripe_at - asyncio.get_running_loop().time())

    def _want(self, row: ReadyDelivery) -> None:
        work = row.work
        if work is not None:
            self._works[row.delivery_id] = work
        self._wanted.set()
        self._written.clear()

    async def _write_accepted(self) -> int:
        rows = self._accepted[: self._size]
        if not rows:
            return 0
        woken = await self._store.record_accepted(sorted(rows, key=itemgetter(0)))
        del self._accepted[: len(rows)]
        self._leave_wire(row[0] for row in rows)
        self._observer.deliveries_finished("delivered", len(rows))
        return woken

    async def _write_undelivered(self) -> int:
        rows = self._undelivered[: self._size]
        if not rows:
            return 0
        result = await self._store.record_undelivered(sorted(rows, key=lambda each: each.row.delivery_id))
        del self._undelivered[: len(rows)]
        refused = {each.delivery_id: each for each in result.refused}
        self._tell_finished(each for each in rows if each.row.delivery_id not in refused)
        self._leave_wire(key for each in rows if not ((key := each.row.delivery_id) in refused and refused[key].ours))
        for each in rows:
            refusal = refused.get(each.row.delivery_id)
            if refusal is not None:
                self._reconsider(each, refusal)
        return result.woken

    async def _write_rest(self) -> None:
        if self._lost:
            lost = list(self._lost)
            await self._store.record_lost(lost)
            del self._lost[: len(lost)]
        if self._holds:
            holds = self._holds[:PER_WRITE]
            self._count_ended(await self._store.hold(sorted(holds)))
            del self._holds[: len(holds)]
            self._leave_wire(each.delivery_id for each in holds)
        if self._releases:
            releases = self._releases[:PER_WRITE]
            self._count_ended(await self._store.release(sorted(releases, key=itemgetter(0))))
            del self._releases[: len(releases)]
            self._leave_wire(each.delivery_id for each in releases)

    def _leave_wire(self, delivery_ids: Iterable[int]) -> None:
        """These deliveries have no lease any more, in the database as well: others of their works may follow."""
        if self._works:
            self._left.update(self._works.pop(each) for each in delivery_ids if each in self._works)

    async def _wake_passed(self) -> int:
        left = list(self._left)
        if not left:
            return 0
        woken = await self._store.wake_passed(left)
        self._left.difference_update(left)
        return woken

    def _count_ended(self, freed: Freed) -> None:
        for state, count in freed.ended.items():
            self._observer.deliveries_finished(state, count)

    def _reconsider(self, undelivered: Undelivered, refusal: Refused) -> None:
        """If a flag was set meanwhile, decide again with it; if the lease was lost, log the attempt and no more."""
        if refusal.ours:
            now = self._instants.now()
            self._undelivered.append(decide_again(undelivered, refusal.recall, refusal.recall_reason, now))
        elif undelivered.outcome is not None:
            self._lost.append(undelivered)

    def _tell_finished(self, rows: Iterable[Undelivered]) -> None:
        for each in rows:
            if each.decision.finished:
                self._observer.deliveries_finished(each.decision.state.value)
            elif each.decision.next_attempt_at is not None:
                self.on_planned(each.decision.next_attempt_at)
