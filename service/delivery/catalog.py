"""What this process knows of webhooks, never more than two seconds old when an attempt starts.

Belongs here: the cache of entries, kept up by notifications and a look a second. Does not belong here: what is in an
entry (``entries``), where it comes from (``service.store``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Final, Protocol

from service.delivery.entries import Entry, SendingDefaults, WebhookSource, build_entry
from service.delivery.instants import DatabaseClock, Monotonic
from service.domain.health import Health, build_health

STALE_AFTER: Final = 2.0  # seconds; chapter 1, registration rules
LOOK_BACK: Final = 15.0  # seconds beyond the last look: a transaction that writes now may commit so much later
KEPT_ENTRIES: Final = 50_000


@dataclass(frozen=True, slots=True)
class Pauses:
    """What operators have paused: everything, tenants, or host names."""

    everything: bool = False
    tenants: frozenset[str] = frozenset()
    hosts: frozenset[str] = frozenset()

    def match(self, entry: Entry) -> bool:
        """Whether this webhook's deliveries are to stay where they are."""
        return self.everything or entry.tenant_id in self.tenants or entry.host in self.hosts


NO_PAUSES: Final = Pauses()


@dataclass(frozen=True, slots=True)
class Trouble:
    """The stored health of a webhook that is, or was, not well; ``held_until`` in seconds since 1970."""

    webhook_key: int
    health: Health | None
    held_until: float | None


@dataclass(frozen=True, slots=True)
class Changes:
    """What has changed lately, and what is read anew each time.

    ``revisions`` are pairs of webhook key and revision. ``processes`` is how many live deliver processes there are.
    """

    revisions: tuple[tuple[int, int], ...] = ()
    troubles: tuple[Trouble, ...] = ()
    pauses: Pauses = field(default_factory=Pauses)
    processes: int = 1


class CatalogStore(Protocol):
    """Where webhooks are kept. Every method may raise StoreUnavailable."""

    async def read_clock(self) -> float:
        """Seconds since 1970 by the database's clock."""

    async def load(self, webhook_keys: Collection[int]) -> list[WebhookSource]:
        """These webhooks, opened; those that do not exist are left out."""

    async def read_changes(self, back: float, troubled: Collection[int], *, first: bool) -> Changes:
        """What has changed in the last ``back`` seconds.

        Health is read of webhooks that are not well, and of the ``troubled``, which were not when we last looked; the
        ``first`` time, of all that are not well, whenever that was written.
        """


class Catalog:
    """Webhooks by key. ``find`` costs a dictionary look-up; ``reload`` and ``refresh`` ask the store.

    Attempts may start on what is known until the monotonic instant ``fresh_until``. ``closed_lanes`` are those that an
    operator has paused, ``unwell_lanes`` those whose breaker or hold lets nothing but extra attempts through.
    ``on_replaced`` is called with the new entry of a webhook whose revision has changed.
    """

    def __init__(
        self, store: CatalogStore, defaults: SendingDefaults, clock: Monotonic, instants: DatabaseClock
    ) -> None:
        self._store = store
        self._defaults = defaults
        self._clock = clock
        self._instants = instants
        self._entries: dict[int, Entry] = {}
        self._troubled: set[int] = set()
        self._looked_at = float("-inf")
        self.fresh_until = float("-inf")
        self.closed_lanes: set[int] = set()
        self.unwell_lanes: set[int] = set()
        self.on_replaced: Callable[[Entry], object] = lambda _: None
        self.pauses = NO_PAUSES
        self.processes = 1

    def find(self, webhook_key: int) -> Entry | None:
        """The webhook, if it is known here."""
        return self._entries.get(webhook_key)

    async def reload(self, webhook_keys: Collection[int]) -> None:
        """Load these anew, known or not."""
        await self._load(webhook_keys)

    async def refresh(self) -> list[Entry]:
        """Take in what has changed since the last look; return the webhooks that are, or were, not well."""
        asked = self._clock.monotonic()
        stepped = await self._measure_clock(asked)
        troubled = set(self._troubled)
        first = not math.isfinite(self._looked_at)
        back = LOOK_BACK if first else self._reach(asked, stepped)
        found = await self._store.read_changes(back, troubled, first=first)
        changed = [key for key, revision in found.revisions if self._is_older(key, revision)]
        if changed:
            await self._load(changed)
        self._adopt(found)
        self._let_time_pass()
        self._looked_at = asked
        self.fresh_until = asked + STALE_AFTER
        self.close_lanes()
        return [self._entries[key] for key in troubled | self._troubled if key in self._entries]

    def note(self, entry: Entry) -> None:
        """An entry's health was changed here."""
        if entry.troubled:
            self._troubled.add(entry.webhook_key)
        else:
            self._troubled.discard(entry.webhook_key)
        if entry.terms.allowance == 0:
            self.unwell_lanes.add(entry.webhook_key)

    def close_lanes(self) -> None:
        """Work out ``closed_lanes`` and ``unwell_lanes`` anew.

        A lane that one-shots share is never unwell: a one-shot that is not well leaves it for a lane of its own.
        """
        epoch = self._instants.epoch()
        self.unwell_lanes = {key for key in self._troubled if self._is_resting(key, epoch)}
        paused = self._entries.values() if self.pauses is not NO_PAUSES else ()
        matching = [entry for entry in paused if self.pauses.match(entry)]
        self.closed_lanes = {lane for entry in matching for lane in (entry.lane, entry.webhook_key)}

    def _is_resting(self, webhook_key: int, epoch: float) -> bool:
        entry = self._entries.get(webhook_key)
        return entry is not None and entry.find_allowance(epoch) == 0

    async def _measure_clock(self, asked: float) -> float:
        """Measure the database's clock anew; return by how many seconds it has stepped forward since the last time."""
        epoch, known = await self._store.read_clock(), self._instants.known
        expected = self._instants.epoch()
        self._instants.measure(epoch, asked, self._clock.monotonic())
        return max(0.0, epoch - expected) if known else 0.0

    def _reach(self, asked: float, stepped: float) -> float:
        """How many seconds to look back: to the last look, and over transactions that were open then.

        If the database's clock has stepped forward since, what was written just before the step looks that much older.
        """
        return LOOK_BACK + asked - self._looked_at + stepped

    def _is_older(self, webhook_key: int, revision: int) -> bool:
        entry = self._entries.get(webhook_key)
        return entry is not None and entry.revision < revision

    async def _load(self, webhook_keys: Collection[int]) -> None:
        sources = await self._store.load(webhook_keys)
        epoch = self._instants.epoch()
        for source in sources:
            known = self._entries.get(source.webhook_key)
            if known is None or known.revision <= source.revision:
                entry = self._build(source, epoch)
                self._entries[source.webhook_key] = entry
                self.note(entry)
                if known is not None and known.revision != entry.revision:
                    self.on_replaced(entry)
        self._forget_some()

    def _build(self, source: WebhookSource, epoch: float) -> Entry:
        """An entry; a row that makes no sense holds its webhook, like one that does not decrypt."""
        try:
            return build_entry(source, self._defaults, epoch, self.processes)
        except ValueError:
            held = replace(source, broken=True, headers=(), retry_schedule=None)
            return build_entry(held, self._defaults, epoch, self.processes)

    def _adopt(self, found: Changes) -> None:
        epoch = self._instants.epoch()
        self.pauses = (
            found.pauses if found.pauses != NO_PAUSES else NO_PAUSES
        )  # the very object: it is asked for by ``is``
        if found.processes != self.processes:
            self.processes = max(1, found.processes)
            for entry in self._entries.values():
                entry.set_terms(epoch, self.processes)
        for trouble in found.troubles:
            known = self._entries.get(trouble.webhook_key)
            if known is not None:
                health = trouble.health or build_health(known.health.enabled_at)
                known.adopt_health(health, trouble.held_until, epoch, self.processes)
                self.note(known)

    def _let_time_pass(self) -> None:
        """Probes become due, and holds end, without anything being written: work out the terms of the troubled anew."""
        epoch = self._instants.epoch()
        for key in self._troubled:
            entry = self._entries.get(key)
            if entry is not None and entry.find_allowance(epoch) != entry.terms.allowance:
                entry.set_terms(epoch, self.processes)

    def _forget_some(self) -> None:
        """Forget the oldest when there are too many; whoever still needs one loads it again."""
        surplus = len(self._entries) - KEPT_ENTRIES
        if surplus > 0:
            for key in list(self._entries)[: surplus + KEPT_ENTRIES // 10]:
                del self._entries[key]
                self._troubled.discard(key)
