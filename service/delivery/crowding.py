"""Whose share of the buffer is used up, so that nobody's backlog keeps the others' deliveries out.

Belongs here: counting what waits, by trust and tenant, and how much one lane may have of what is free. Does not
belong here: whose turn it is (``slots``), and a lane's own caps (``lanes``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from service.delivery.lanes import Lane, Tenant, Trust

PARTS: Final = 16
EASED: Final = 0.75
UNPROVEN_AT_ONCE: Final = 64

Crowd: TypeAlias = Trust | Tenant
_SHARED_WITH: Final[dict[Trust, tuple[Trust, ...]]] = {
    Trust.PROVEN: (),
    Trust.NEW: (Trust.NEW,),
    Trust.SUSPECT: (Trust.NEW, Trust.SUSPECT),
}


class Buffer:
    """Room for deliveries that wait for a slot, ``size`` in all.

    A lane may have a sixteenth of what is free above the last quarter, and one delivery even then, so that many greedy
    lanes leave room for one more. Lanes that are not proven have half of the buffer together, suspects among them a
    quarter, one tenant half.
    ``reserved`` is room kept for deliveries that are about to come.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.waiting = 0
        self.reserved = 0
        self._in_lanes = [0, 0, 0]
        self._unproven = max(1, size // 2)
        self._suspects = max(1, size // 4)
        self._per_tenant = max(1, size // 2)

    @property
    def free(self) -> int:
        """How many more deliveries there is room for."""
        return max(0, self.size - self.waiting - self.reserved)

    @property
    def per_lane(self) -> int:
        """How many deliveries of one lane may wait as things are, whatever it may have by itself."""
        return max(1, (self.free - self.size // 4) // PARTS)

    def count(self, lane: Lane, deliveries: int) -> None:
        """So many more deliveries (fewer, if negative) wait in a lane."""
        self.waiting += deliveries
        self.move(lane, deliveries)

    def move(self, lane: Lane, deliveries: int) -> None:
        """So many deliveries that waited elsewhere wait in a lane now (or the other way round, if negative)."""
        self._in_lanes[lane.trust] += deliveries
        lane.tenant.waiting += deliveries

    def judge(self, lane: Lane, trust: Trust) -> None:
        """Trust a lane more, or less, from now on."""
        self._in_lanes[lane.trust] -= len(lane.rows)
        lane.trust = trust
        self._in_lanes[trust] += len(lane.rows)

    def find_crowd(self, lane: Lane) -> Crowd | None:
        """Who has used up its part of the buffer: the lanes trusted like this one, or its tenant; None: nobody."""
        return next((crowd for crowd in list_crowds(lane) if self.find_left(crowd) <= 0), None)

    def find_left(self, crowd: Crowd) -> int:
        """How many more deliveries of a crowd may wait: of a tenant, of suspects, of suspects and new lanes together."""
        waiting, part = self._find_part(crowd)
        return part - waiting

    def has_eased(self, crowd: Crowd) -> bool:
        """Whether a crowd has gone so far that it pays to claim for it again."""
        waiting, part = self._find_part(crowd)
        return waiting <= EASED * part

    def find_room(self, lane: Lane) -> int:
        """How many more deliveries of a lane may come in."""
        room = lane.find_room(self.per_lane)
        return min(room, self.free) if room and self.find_crowd(lane) is None else 0

    def may_claim(self, lane: Lane) -> bool:
        """Whether it pays to claim more deliveries of a lane."""
        return self.find_room(lane) > 0 and all(map(self.has_eased, list_crowds(lane)))

    def _find_part(self, crowd: Crowd) -> tuple[int, int]:
        """How many deliveries of a crowd wait, and how many may."""
        if isinstance(crowd, Tenant):
            return crowd.waiting, self._per_tenant
        suspects = self._in_lanes[Trust.SUSPECT]
        if crowd is Trust.SUSPECT:
            return suspects, self._suspects
        return suspects + self._in_lanes[Trust.NEW], self._unproven


class Shares:
    """How many more deliveries each of these lanes may get (``rooms``, by key), so that there is room for all of them.

    First come, first served. ``denied`` are crowds that have nothing left for a lane. One that has had its part gets
    more when it has eased, so that claims are worth their price; and lanes that are not proven get 64 in all, so that a
    claim which brings their backlog holds nobody up.
    """

    def __init__(self, buffer: Buffer, lanes: Iterable[Lane]) -> None:
        self.rooms: dict[int, int] = {}
        self.denied: set[Crowd] = set()
        self._buffer = buffer
        self._left: dict[Crowd, int] = {}
        free, per_lane = buffer.free, buffer.per_lane
        for lane in lanes:
            if lane.key not in self.rooms:
                self.rooms[lane.key] = self._deal(lane, min(free, lane.find_room(per_lane)))

    def _deal(self, lane: Lane, wanted: int) -> int:
        if not wanted:
            return 0
        crowds = list_crowds(lane)
        for crowd in crowds:
            if self._find_left(crowd) <= 0:
                self.denied.add(crowd)
                return 0
        room = min(wanted, *(self._left[crowd] for crowd in crowds))
        for crowd in crowds:
            self._left[crowd] -= room
        return room

    def _find_left(self, crowd: Crowd) -> int:
        left = self._left.get(crowd)
        if left is None:
            left = self._buffer.find_left(crowd) if self._buffer.has_eased(crowd) else 0
            left = self._left[crowd] = left if isinstance(crowd, Tenant) else min(left, UNPROVEN_AT_ONCE)
        return left


def list_crowds(lane: Lane) -> tuple[Crowd, ...]:
    """Those which a lane shares a part of the buffer with."""
    return (*_SHARED_WITH[lane.trust], lane.tenant)
