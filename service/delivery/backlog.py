"""Which lanes have deliveries due in the queue that no process has leased yet.

Belongs here: what claims and surveys have shown of lanes. Does not belong here: what a claim asks for (``claiming``) and
when the next one is made (``intake``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

LONG_AGO: Final = float("-inf")
# Claims expect a delivery to be committed within so many seconds of its due time; surveys find the others.
LATEST_COMMIT: Final = 5.0
ROUNDING: Final = 0.001  # seconds that an instant may lose on its way from the database


class Backlog:
    """The lanes that are *behind*: as far as this process knows, the queue holds something due of theirs.

    Each has an instant before which nothing of it was due; claims look at its index from there on. Every other lane has
    nothing that was due before ``since``, unless a transaction committed it more than five seconds after it was due:
    surveys find that. Instants are seconds since 1970 by the database's clock.
    """

    def __init__(self) -> None:
        self.since = LONG_AGO
        self._lanes: dict[int, float] = {}
        self._marked: set[int] = set()
        self._latest = LONG_AGO

    def __contains__(self, lane: int) -> bool:
        """Whether a lane is behind."""
        return lane in self._lanes

    def __iter__(self) -> Iterator[tuple[int, float]]:
        """The lanes that are behind, each with its instant; first those that claims have not reached for longest."""
        return iter(self._lanes.items())

    def mark(self, lane: int) -> None:
        """The queue holds something of this lane that is due, or is about to."""
        self._lanes.setdefault(lane, self.since)
        self._marked.add(lane)

    def find_instant(self, lane: int) -> float | None:
        """The instant before which nothing of this lane was due; None: it is not behind."""
        return self._lanes.get(lane)

    def move(self, lane: int, since: float) -> None:
        """Deliveries were moved into this lane, due since an instant."""
        self._lanes[lane] = min(since, self._lanes.get(lane, since))
        self._marked.add(lane)

    def begin_claim(self) -> None:
        """A claim is about to be sent: a lane that it empties is behind no more, unless it is marked meanwhile."""
        self._marked.clear()

    def note_claim(self, reached: Iterable[int], emptied: Collection[int], left: Iterable[int], since: float) -> None:
        """Take in what a claim has shown. Lanes that it did not reach keep their place in the line.

        It reached some lanes, in this order, and took all that was due of those ``emptied``; of those ``left`` it found
        something due since the instant, and took less.
        """
        for lane in reached:
            at = self._lanes.pop(lane, since)
            if lane not in emptied or lane in self._marked:
                self._lanes[lane] = at
        for lane in left:
            self._lanes.setdefault(lane, since)

    def note_survey(self, lanes: Sequence[int], oldest: Sequence[float]) -> None:
        """Take in lanes in which a survey has found something due, and since when."""
        self._lanes.update(zip(lanes, (at - ROUNDING for at in oldest), strict=True))
        self._marked.update(lanes)

    def note_full_claim(self, at: float) -> None:
        """A claim at this instant, which is now, has seen all lanes that became behind lately."""
        if at < max(self._latest, self.since):
            self.forget_instants()
        self._latest = at
        self.raise_since(at)

    def raise_since(self, at: float) -> None:
        """All lanes with something due at this instant are known, but for commits that were late."""
        self.since = max(self.since, at - LATEST_COMMIT)

    def forget_instants(self) -> None:
        """Trust no instant any more: the clock was put back, or the database may be another one."""
        self.since = self._latest = LONG_AGO
        self._lanes = dict.fromkeys(self._lanes, LONG_AGO)
