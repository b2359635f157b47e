"""The rotating cursor over the lanes of the queue, and which lanes still have deliveries there.

Belongs here: what a claim says about lanes. Does not belong here: what is asked for in a claim (``claiming``) and when
the next one is due (``engine``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Final

FIRST_LANE: Final = -(2**63)
LAST_LANE: Final = 2**63 - 1


class Scan:
    """Where the next claim goes on, and which lanes are behind: older deliveries of theirs wait in the database.

    ``after`` is the lane after which the next claim looks. ``took`` is how many deliveries the present round over all
    lanes has brought so far; a round is one claim, or several where there are many lanes.
    """

    def __init__(self) -> None:
        self.after = FIRST_LANE
        self.took = 0
        self._number = 0
        self._behind: dict[int, int] = {}

    def is_behind(self, lane: int) -> bool:
        """Whether older deliveries of a lane are likely to wait in the database."""
        return lane in self._behind

    def mark(self, lane: int) -> None:
        """A delivery of this lane goes into the database without a lease, or something of it was left there."""
        self._behind[lane] = self._number

    def begin(self) -> None:
        """A claim is about to be sent: what it does not find is not there, unless it was marked later."""
        if self.after == FIRST_LANE:
            self.took = 0
        self._number += 1

    def note(
        self, lanes: Collection[int], ends_at: int | None, limit: int, rooms: Mapping[int, int], default: int
    ) -> bool:
        """Take in what the claim brought; True when the round goes on.

        ``lanes`` has the lane of each delivery, at most ``limit``; ``ends_at`` is the last lane that was looked at, None
        if there is none after it; ``rooms`` and ``default`` are what was asked of each lane.
        """
        counts = Counter(lanes)
        full = len(lanes) >= limit
        end = max(counts) if full else LAST_LANE if ends_at is None else ends_at
        left = {lane for lane, count in counts.items() if count >= rooms.get(lane, default)}
        left.update(lane for lane, room in rooms.items() if not room)
        if full:
            left.add(end)
        self._forget(end, left)
        for lane in left:
            self.mark(lane)
        self.took += len(lanes)
        self.after = FIRST_LANE if end == LAST_LANE else end
        return end != LAST_LANE

    def _forget(self, end: int, left: Collection[int]) -> None:
        """Lanes that the claim has looked at and emptied are not behind any more."""
        passed = [
            lane
            for lane, number in self._behind.items()
            if self.after < lane <= end and number < self._number and lane not in left
        ]
        for lane in passed:
            del self._behind[lane]
