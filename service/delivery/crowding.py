"""Whose share of the buffer is used up, so that nobody's backlog keeps the others' deliveries out.

Belongs here: counting what waits, by standing and tenant, and how much one lane may have of what is free. Does not
belong here: whose turn it is (``slots``), and a lane's own caps (``lanes``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, TypeAlias

from service.delivery.lanes import Lane, Standing, Tenant

PARTS: Final = 16
EASED: Final = 0.75

Crowd: TypeAlias = Standing | Tenant


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
        self._in_lanes[lane.standing] += deliveries
        lane.tenant.waiting += deliveries

    def judge(self, lane: Lane, standing: Standing) -> None:
        """A lane has another standing from now on."""
        self._in_lanes[lane.standing] -= len(lane.rows)
        lane.standing = standing
        self._in_lanes[standing] += len(lane.rows)

    def is_open(self, standing: Standing) -> bool:
        """Whether lanes of this standing have not had their part yet."""
        return self._find_excess(standing, 1) < 0

    def _find_excess(self, standing: Standing, part: float) -> float:
        """How many more wait than this part of what lanes of a standing may have; negative while there is room."""
        if standing is Standing.PROVEN:
            return -1
        suspects = self._in_lanes[Standing.SUSPECT]
        excess = suspects + self._in_lanes[Standing.NEW] - part * self._unproven
        return max(excess, suspects - part * self._suspects) if standing is Standing.SUSPECT else excess

    def find_crowd(self, lane: Lane) -> Crowd | None:
        """Who has had its part of the buffer: lanes of this one's standing, or its tenant; None if neither has."""
        if not self.is_open(lane.standing):
            return lane.standing
        return lane.tenant if lane.tenant.waiting >= self._per_tenant else None

    def has_eased(self, crowd: Crowd) -> bool:
        """Whether a crowd has gone so far that it pays to claim for it again."""
        if isinstance(crowd, Tenant):
            return crowd.waiting <= EASED * self._per_tenant
        return self._find_excess(crowd, EASED) <= 0

    def find_room(self, lane: Lane) -> int:
        """How many more deliveries of a lane may be claimed."""
        room = lane.find_room(self.per_lane)
        return min(room, self.free) if room and self.find_crowd(lane) is None else 0

    def list_rooms(self, lanes: Iterable[Lane]) -> dict[int, int]:
        """The same for many lanes, by key."""
        free, per_lane, per_tenant = self.free, self.per_lane, self._per_tenant
        is_open = [self.is_open(standing) for standing in Standing]
        return {
            lane.key: min(free, lane.find_room(per_lane))
            if is_open[lane.standing] and lane.tenant.waiting < per_tenant
            else 0
            for lane in lanes
        }
