"""What upkeep does beside delivering: replays go on, attempts are rolled up, old rows are forgotten.

Belongs here: rounds for ``upkeep.leading.Loop``. Does not belong here: how often they run (the composition root).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from service.domain.profiles import ProfileSet
from service.store import audit, idempotency, stats
from service.store.database import Database
from service.store.registry import Registry
from service.store.replays import advance_replays
from service.store.state_pruning import StatePruning

STEPS_AT_ONCE = 20  # of replays, in a round
ROLLUPS_KEPT = timedelta(hours=26)


@dataclass(frozen=True, slots=True)
class Kept:
    """Retentions: ``state`` of jobs, batches, audit log and replays, ``messages`` of messages and dead letters."""

    state: timedelta
    messages: timedelta


class AdminUpkeep:
    """Three rounds. Each may raise StoreUnavailable or Conflict, and is safe beside another process's."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        profiles: ProfileSet,
        kept: Kept,
        on_made: Callable[[bool], object] = lambda _: None,
        on_pruned: Callable[[Mapping[str, int]], object] = lambda _: None,
    ) -> None:
        self._database = database
        self._registry = registry
        self._profiles = profiles
        self._kept = kept
        self._on_made = on_made
        self._state = StatePruning(database, registry.clock, kept.state, kept.messages, on_pruned)

    async def advance_replays(self) -> None:
        """Take the steps of replays that are due; every second or so."""
        for _ in range(STEPS_AT_ONCE):
            if not await advance_replays(self._database, self._registry, self._profiles, self._on_made):
                return

    async def roll_up(self) -> None:
        """Roll up new attempts; every minute or so."""
        more = True
        while more:
            async with self._database.transaction() as session:
                more = await stats.roll_up(session)

    async def prune(self) -> None:
        """Forget what is past its retention: answers, audit entries, replays, roll-ups, dead letters, state; in part."""
        now = self._registry.clock.now()
        async with self._database.session() as session:
            await idempotency.prune_answers(session, now)
            await audit.prune_entries(session, now - self._kept.state)
            await stats.prune_rollups(session, now - ROLLUPS_KEPT)
            await session.execute("replay_prune", now - self._kept.state)
            await session.execute("pauses_prune")
            await session.execute("dead_letters_prune", now - self._kept.messages)
        await self._state.run_once()
