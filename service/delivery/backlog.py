"""Which lanes have something due in the queue, and since when the others have had nothing.

Belongs here: what claims and surveys say about lanes. Does not belong here: what is asked for in a claim (``claiming``)
and when the next one is due (``engine``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

LONG_AGO: Final = float("-inf")
LATEST_COMMIT: Final = 5.0
ROUNDING: Final = 0.001


class Backlog:
    """The lanes that are behind: something of theirs is due in the queue, as far as is known here.

    Instants are seconds since 1970 by the database's clock. Other lanes have nothing that was due before ``since``, but
    for what became due more than five seconds before its transaction ended: surveys find that. A lane that is behind
    has an instant of its own before which nothing of it is due.
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
        """The lanes that are behind, each with its instant, those first that no claim has come to for longest."""
        return iter(self._lanes.items())

    def mark(self, lane: int) -> None:
        """Something of this lane goes into the database without a lease, or was left there."""
        self._lanes.setdefault(lane, self.since)
        self._marked.add(lane)

    def find_instant(self, lane: int) -> float | None:
        """Nothing of this lane was due before; None: it is not behind."""
        return self._lanes.get(lane)

    def move(self, lane: int, since: float) -> None:
        """Something that was due since an instant is in this lane now."""
        self._lanes[lane] = min(since, self._lanes.get(lane, since))
        self._marked.add(lane)

    def ask(self) -> None:
        """A claim is about to be sent: what it does not find is not there, unless marked later."""
        self._marked.clear()

    def note(self, reached: Iterable[int], emptied: Collection[int], left: Iterable[int], since: float) -> None:
        """A claim has come to some lanes, in this order, and has taken all that was due of some of them.

        It has left something of others since that instant. Lanes that it did not come to keep their place in the line.
        """
        for lane in reached:
            at = self._lanes.pop(lane, since)
            if lane not in emptied or lane in self._marked:
                self._lanes[lane] = at
        for lane in left:
            self._lanes.setdefault(lane, since)

    def note_lanes(self, lanes: Sequence[int], oldest: Sequence[float]) -> None:
        """A survey has found lanes with something due, and when the oldest became so."""
        self._lanes.update(zip(lanes, (at - ROUNDING for at in oldest), strict=True))
        self._marked.update(lanes)

    def advance(self, at: float) -> None:
        """A claim has seen all lanes with something due at this instant, which is now."""
        if at < max(self._latest, self.since):
            self.forget_instants()
        self._latest = at
        self.pass_by(at)

    def pass_by(self, at: float) -> None:
        """All lanes with something that was due at this instant are known."""
        self.since = max(self.since, at - LATEST_COMMIT)

    def forget_instants(self) -> None:
        """The clock was put back, or the database may be another: what is known of instants holds no longer."""
        self.since = self._latest = LONG_AGO
        self._lanes = dict.fromkeys(self._lanes, LONG_AGO)
