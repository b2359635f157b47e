"""Forgetting what is older than ``RETENTION_STATE``: how far the walks go in a round, and how often they begin anew.

Belongs here: pace. Does not belong here: what a page is (``state_walks``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from service.lifecycle import Clock
from service.store.database import Database
from service.store.state_walks import BatchWalk, Cut, JobWalk, MessageWalk, Walk, WebhookWalk

SECONDS_A_WALK: Final = 10.0  # of a round, which comes every minute: the database has most of its time for the rest
PASSES: Final = 100  # per retention: a finished pass rests until a hundredth of it is over


@dataclass(slots=True)
class _Going:
    walk: Walk
    pause: float  # between the beginnings of two passes, in seconds
    began: float | None = None
    rests_until: float = 0.0


class StatePruning:
    """Rounds over everything that ``RETENTION_STATE`` ages. Each may raise StoreUnavailable or Conflict.

    Where the walks are is kept in memory: another leader begins anew, and two at once do each other no harm.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        state: timedelta,
        messages: timedelta,
        on_pruned: Callable[[Mapping[str, int]], object] = lambda _: None,
    ) -> None:
        self._clock = clock
        self._state = state
        self._messages = max(state, messages)
        self._on_pruned = on_pruned
        pause = state.total_seconds() / PASSES
        self._walks = (  # messages first: a batch goes with those that are left
            _Going(MessageWalk(database), pause),
            _Going(BatchWalk(database), pause),
            _Going(JobWalk(database, state), 0.0),
            _Going(WebhookWalk(database), pause),
        )

    async def run_once(self) -> None:
        """Let each walk go on for a while, unless it rests; every minute or so."""
        now = self._clock.now()
        cut = Cut(now, now - self._state, now - self._messages)
        pruned: Counter[str] = Counter()
        try:
            for going in self._walks:
                await self._go_on(going, cut, pruned)
        finally:
            if +pruned:
                self._on_pruned(+pruned)

    async def _go_on(self, going: _Going, cut: Cut, pruned: Counter[str]) -> None:
        now = self._clock.monotonic()
        until = now + SECONDS_A_WALK
        while going.rests_until <= now < until:
            going.began = now if going.began is None else going.began
            taken = await going.walk.take(cut)
            pruned.update(taken.pruned)
            if not taken.more:
                going.rests_until, going.began = going.began + going.pause, None
                return
            now = self._clock.monotonic()
