"""Webhooks' health: what attempts have shown, written to the row that all processes share.

Belongs here: collecting observations, applying the rules of ``domain.health`` to the stored row, and disabling. Does
not belong here: the rules, and what happens to a delivery (``decisions``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from service.delivery.catalog import Catalog
from service.delivery.entries import Entry
from service.delivery.instants import DatabaseClock, instant
from service.delivery.observer import Observer
from service.domain.health import Health, HealthEvent, HealthRules, Observation, build_health, observe
from service.domain.webhooks import DisableReason
from service.lifecycle import heed, wait_at_most
from service.ports import Conflict, StoreUnavailable, Tell

GATHER: Final = 0.1  # seconds in which observations are gathered for one write
BACK_OFF: Final = 1.0  # seconds
SUCCESS_EVERY: Final = 30.0  # seconds between writes about a webhook that is well
STOPPING: Final = 2.0  # seconds for which a webhook rests here while it is being disabled


class Result(NamedTuple):
    """How one attempt ended, and when; ``operational``: its delivery was about the service's own work."""

    delivered: bool
    epoch: float
    operational: bool = False


@dataclass(slots=True)
class Shown:
    """What attempts of one webhook showed since the last write. Instants are seconds since 1970."""

    entry: Entry
    results: list[Result] = field(default_factory=list)
    disable: DisableReason | None = None
    hold_until: float = 0.0
    clears_hold: bool = False
    error: str | None = None


class Disabling(NamedTuple):
    """Why a webhook is to be disabled. ``untold``: only operational deliveries failed, which cause no others."""

    reason: DisableReason
    untold: bool


@dataclass(frozen=True, slots=True)
class HealthRow:
    """What is stored of a webhook, locked until the change is written."""

    webhook_key: int
    webhook_id: str
    tenant_id: str
    revision: int
    enabled: bool
    state_at: datetime
    health: Health | None
    held_until: float | None


@dataclass(frozen=True, slots=True)
class HealthChange:
    """What is to be stored. ``disable``: the webhook stops, and what waits for it is held in the same transaction.

    ``events`` are the moves of the stored breaker, in order.
    """

    health: Health
    held_until: float | None
    last_success: float | None = None
    last_failure: float | None = None
    last_error: str | None = None
    disable: Disabling | None = None
    events: tuple[HealthEvent, ...] = ()


@dataclass(frozen=True, slots=True)
class Disabled:
    """A webhook that was just disabled."""

    webhook_key: int
    webhook_id: str
    tenant_id: str
    origin: str
    reason: DisableReason


class HealthStore(Protocol):
    """Where health is kept. May raise StoreUnavailable, or Conflict: then nothing of it was written."""

    async def change_health(
        self, webhook_keys: Collection[int], change: Callable[[HealthRow], HealthChange | None]
    ) -> list[Disabled]:
        """Lock these webhooks, ask for each row's change, write the changes; return what was disabled by it."""


class Observations:
    """Takes observations at any time; ``run`` writes them in groups, and at once when a webhook is to be disabled.

    ``on_health`` is called with each entry whose health has changed here.
    """

    def __init__(
        self, store: HealthStore, catalog: Catalog, instants: DatabaseClock, observer: Observer, tell: Tell
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._instants = instants
        self._observer = observer
        self._tell = tell
        self._shown: dict[int, Shown] = {}
        self._wanted = asyncio.Event()
        self._urgent = asyncio.Event()
        self.on_health: Callable[[Entry], object] = lambda _: None

    def note_success(self, entry: Entry, epoch: float) -> None:
        """An attempt was accepted. A webhook that is well is written about now and then only."""
        if not entry.plain or epoch - entry.success_noted >= SUCCESS_EVERY:
            entry.success_noted = epoch
            shown = self._note(entry, Result(True, epoch))
            shown.clears_hold, shown.hold_until = True, 0.0

    def note_failure(
        self,
        entry: Entry,
        epoch: float,
        error: str,
        *,
        operational: bool,
        hold_until: datetime | None,
        disable: DisableReason | None,
    ) -> None:
        """An attempt failed. ``hold_until``: the receiver asked the whole webhook to wait."""
        shown = self._note(entry, Result(False, epoch, operational))
        shown.error = error
        if hold_until is not None:
            shown.hold_until = max(shown.hold_until, hold_until.timestamp())
            self._adopt(entry, entry.health, max(entry.held_until, shown.hold_until))
        if disable is not None:
            self._adopt(entry, entry.health, max(entry.held_until, epoch + STOPPING))
            shown.disable = disable
            self._urgent.set()

    async def run(self) -> None:
        """Write what comes, until cancelled."""
        while True:
            await heed(self._wanted)
            await wait_at_most(self._urgent, GATHER)
            try:
                await self.flush()
            except (StoreUnavailable, Conflict):
                self._wanted.set()
                await asyncio.sleep(BACK_OFF)

    async def flush(self) -> None:
        """Write everything there is. Raises StoreUnavailable or Conflict; what was not written is kept."""
        self._wanted.clear()
        self._urgent.clear()
        shown, self._shown = self._shown, {}
        if not shown:
            return
        changed: dict[int, HealthChange] = {}
        try:
            disabled = await self._store.change_health(sorted(shown), lambda row: self._change(row, shown, changed))
        except (StoreUnavailable, Conflict):
            self._keep(shown)
            raise
        self._adopt_changes(shown, changed)
        for key, change in changed.items():
            self._tell_breaker(shown[key].entry, change)
        await self._tell_disabled(disabled)

    def _note(self, entry: Entry, result: Result) -> Shown:
        """Remember the result, and act on it in this process before it is written."""
        shown = self._shown.get(entry.webhook_key)
        if shown is None or shown.entry.revision < entry.revision:
            shown = self._shown[entry.webhook_key] = Shown(entry)
        shown.results.append(result)
        health = _apply(entry.health, result, entry.rules).health
        self._adopt(entry, health, 0.0 if result.delivered else entry.held_until)
        self._wanted.set()
        return shown

    def _adopt(self, entry: Entry, health: Health, held_until: float) -> None:
        entry.adopt_health(health, held_until, self._instants.epoch(), self._catalog.processes)
        self._catalog.note(entry)
        self.on_health(entry)

    def _change(self, row: HealthRow, shown: dict[int, Shown], changed: dict[int, HealthChange]) -> HealthChange | None:
        """What one webhook's observations make of its stored health; None when they are about another revision."""
        about = shown[row.webhook_key]
        if row.revision != about.entry.revision:
            return None
        change = changed[row.webhook_key] = apply_shown(row, about, about.entry.rules)
        return change

    def _keep(self, shown: dict[int, Shown]) -> None:
        """Put back what was not written, before what came meanwhile."""
        for key, newer in self._shown.items():
            older = shown.get(key)
            if older is None or older.entry.revision != newer.entry.revision:
                shown[key] = newer
                continue
            older.results += newer.results
            older.disable = newer.disable or older.disable
            older.hold_until = newer.hold_until if newer.clears_hold else max(older.hold_until, newer.hold_until)
            older.clears_hold = older.clears_hold or newer.clears_hold
            older.error = newer.error or older.error
        self._shown = shown

    def _adopt_changes(self, shown: dict[int, Shown], changed: dict[int, HealthChange]) -> None:
        """Adopt what is stored now, unless newer observations came meanwhile."""
        for key, change in changed.items():
            entry = shown[key].entry
            if key not in self._shown and self._catalog.find(key) is entry:
                self._adopt(entry, change.health, change.held_until or 0.0)
        self._catalog.close_lanes()

    def _tell_breaker(self, entry: Entry, change: HealthChange) -> None:
        """One line for each move of the stored breaker: all processes together make it once, under the row's lock."""
        for event in change.events:
            self._tell(f"breaker_{event.value}", **describe_health(entry, change))

    async def _tell_disabled(self, disabled: list[Disabled]) -> None:
        if not disabled:
            return
        self._observer.webhooks_disabled(len(disabled))
        for each in disabled:
            self._tell(
                "webhook_disabled",
                webhook_id=each.webhook_id,
                tenant_id=each.tenant_id,
                reason=each.reason.value,
                origin=each.origin,
            )
        await self._catalog.reload([each.webhook_key for each in disabled])


def _apply(health: Health, result: Result, rules: HealthRules) -> Observation:
    delivered, epoch, operational = result
    return observe(health, delivered=delivered, now=instant(epoch), rules=rules, operational=operational)


def _asked(shown: Shown) -> Disabling | None:
    """The disabling that a 410 asks for; untold when no delivery about work has failed with it."""
    if shown.disable is None:
        return None
    return Disabling(shown.disable, all(result.operational for result in shown.results if not result.delivered))


def describe_health(entry: Entry, change: HealthChange) -> dict[str, object]:
    """The fields of a log line about a webhook's health."""
    health = change.health
    return {
        "webhook_id": entry.webhook_id,
        "tenant_id": entry.tenant_id,
        "origin": entry.origin,
        "failures": health.failures,
        "first_failure_at": health.first_failure_at,
        "last_success_at": health.last_success_at,
        "last_error": change.last_error,
        "probe_at": health.probe_at,
        "held_until": None if change.held_until is None else instant(change.held_until),
    }


def apply_shown(row: HealthRow, shown: Shown, rules: HealthRules) -> HealthChange:
    """Apply what attempts showed, in their order, to the stored health."""
    health = row.health or build_health(row.state_at)
    events: tuple[HealthEvent, ...] = ()
    moves: list[HealthEvent] = []
    for result in shown.results:
        health, events = _apply(health, result, rules)
        moves += (event for event in events if event is not HealthEvent.DISABLE)
    held = None if shown.clears_hold else row.held_until
    failing = Disabling(DisableReason.FAILING, not health.work_failed) if HealthEvent.DISABLE in events else None
    return HealthChange(
        health=health,
        held_until=max(held or 0.0, shown.hold_until) or None,
        last_success=max((result.epoch for result in shown.results if result.delivered), default=None),
        last_failure=max((result.epoch for result in shown.results if not result.delivered), default=None),
        last_error=shown.error,
        disable=(_asked(shown) or failing) if row.enabled else None,
        events=tuple(moves),
    )
