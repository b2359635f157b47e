"""Sharing the buffer of deliveries that wait for a slot, so that nobody's backlog keeps the others out.

A *crowd* is whoever shares a part of the buffer: all lanes of a trust, or all lanes of a tenant. Belongs here: counting
what waits by crowd, and how much of the free room one lane may have. Does not belong here: whose turn it is (``slots``),
and a lane's own caps (``lanes``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from service.delivery.lanes import Lane, Tenant, Trust

PARTS: Final = 16  # a lane may have one of so many parts of the free room
EASED: Final = 0.75  # a crowd that had used up its part gets more once it is down to this share of it
UNPROVEN_AT_ONCE: Final = 64  # deliveries that one claim brings for all lanes that are not proven

Crowd: TypeAlias = Trust | Tenant
# Crowds of lanes by trust: suspects count for their own part, and with the new lanes for that of all unproven ones.
_SHARED_WITH: Final[dict[Trust, tuple[Trust, ...]]] = {
    Trust.PROVEN: (),
    Trust.NEW: (Trust.NEW,),
    Trust.SUSPECT: (Trust.NEW, Trust.SUSPECT),
}


class Buffer:
    """Room for deliveries that wait for a slot, ``size`` in all.

    One lane may have a sixteenth of what is free above the last quarter, and always at least one delivery: so a newcomer
    finds room however many lanes have a backlog. All lanes that are not proven have at most half of the buffer, the
    suspects among them a quarter, and one tenant half. ``reserved`` is room kept for deliveries that ingest is about to
    hand over.
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
        """How many deliveries of one lane may wait now, whatever the lane's own cap is."""
        return max(1, (self.free - self.size // 4) // PARTS)

    def count(self, lane: Lane, deliveries: int) -> None:
        """So many more deliveries (fewer, if negative) wait here, in this lane."""
        self.waiting += deliveries
        self.move(lane, deliveries)

    def move(self, lane: Lane, deliveries: int) -> None:
        """So many deliveries that wait here already come into this lane (or leave it, if negative)."""
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
        """How many more deliveries of a crowd may wait; ``Trust.NEW`` stands for all lanes that are not proven."""
        waiting, part = self._find_part(crowd)
        return part - waiting

    def has_eased(self, crowd: Crowd) -> bool:
        """Whether so much of a crowd's part is free again that a claim is worth its price."""
        waiting, part = self._find_part(crowd)
        return waiting <= EASED * part

    def find_room(self, lane: Lane) -> int:
        """How many more deliveries of a lane may come in."""
        room = lane.find_room(self.per_lane)
        return min(room, self.free) if room and self.find_crowd(lane) is None else 0

    def may_claim(self, lane: Lane) -> bool:
        """Whether a claim for this lane is worth its price."""
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
    """How many more deliveries a claim may bring for each of these lanes (``rooms``, by lane key).

    Lanes are served in the order given, and what one gets is taken from what its crowds have left. ``denied`` are the
    crowds that had nothing left for a lane: a crowd that has used up its part gets nothing until it has eased. All
    unproven lanes together get at most 64 a claim, so that bringing in their backlog holds nobody up.
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
    """The crowds that a lane belongs to."""
    return (*_SHARED_WITH[lane.trust], lane.tenant)
