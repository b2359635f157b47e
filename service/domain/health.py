"""A webhook's health: the breaker, and the rule that disables it (chapter 5).

Belongs here: pure functions over a health value that replicas share through the database. Does not belong here: the
webhook's state (``webhooks``), what happens to one delivery (``outcomes``), who may send how much (``delivery``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, NamedTuple

from service.domain.schedule import grow, later

WINDOW: Final = timedelta(hours=24)
WINDOWS: Final = 3
_ALL_WINDOWS: Final = (1 << WINDOWS) - 1


class Breaker(StrEnum):
    """``half_open`` lets ``Health.ramp`` attempts run at a time, ``open`` none until ``probe_at``."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class HealthEvent(StrEnum):
    """What an observation may set off. ``disable`` repeats while the webhook is not disabled: act on the state change."""

    OPENED = "opened"
    HALF_OPENED = "half_opened"
    CLOSED = "closed"
    DISABLE = "disable"


@dataclass(frozen=True, slots=True)
class HealthRules:
    """The numbers. ``disable_after`` None: never (the hidden webhook of one-shot URLs).

    The breaker opens after ``open_failures`` failures in a row that took ``open_after`` or longer: a count alone would
    open it on one burst of concurrent failures, a time alone on two failures a day apart with nothing between.
    Probes wait ``probe_base``, doubled by each failed one up to ``probe_cap``. Recovery lets 1, 2, 4, … attempts run at
    a time, and is over above ``ramp_limit``.
    """

    disable_after: timedelta | None = timedelta(days=5)
    disable_failures: int = 10
    open_failures: int = 10
    open_after: timedelta = timedelta(seconds=30)
    probe_base: timedelta = timedelta(seconds=15)
    probe_cap: timedelta = timedelta(minutes=10)
    ramp_limit: int = 32


@dataclass(frozen=True, slots=True)
class Health:
    """What is remembered of a webhook's attempts; one row, no history.

    ``failures``, ``first_failure_at`` and the windows count from the later of ``enabled_at`` and ``last_success_at``.
    ``window`` numbers the 24 h windows of that span, and is the newest one with a failed attempt; bit n of
    ``failed_windows`` says that window ``window - n`` has one. ``probes`` are failed probes since the breaker last was
    closed. ``ramp`` is how many attempts may run at a time while half open. ``work_failed``: not all of the failures are
    of operational deliveries.
    """

    enabled_at: datetime
    last_success_at: datetime | None = None
    failures: int = 0
    first_failure_at: datetime | None = None
    window: int = 0
    failed_windows: int = 0
    breaker: Breaker = Breaker.CLOSED
    probes: int = 0
    probe_at: datetime | None = None
    ramp: int = 1
    work_failed: bool = False

    @property
    def span_start_at(self) -> datetime:
        """The later of the last enable and the last success."""
        return self.enabled_at if self.last_success_at is None else max(self.enabled_at, self.last_success_at)


class Observation(NamedTuple):
    """A new health value and what it sets off."""

    health: Health
    events: tuple[HealthEvent, ...] = ()


DEFAULT_RULES: Final = HealthRules()


def build_health(enabled_at: datetime, *, trial: bool = False) -> Health:
    """Health of a new webhook, after a URL change, or (``trial``) after an enable: one attempt goes first, alone."""
    return Health(enabled_at, breaker=Breaker.HALF_OPEN if trial else Breaker.CLOSED)


def observe(
    health: Health,
    *,
    delivered: bool,
    now: datetime,
    rules: HealthRules = DEFAULT_RULES,
    operational: bool = False,
) -> Observation:
    """What one attempt does to a webhook's health; ``operational``: its delivery was about the service's own work.

    Only attempts under the present revision count, tests and our own faults never. ``now`` is when the attempt ended.
    """
    if delivered:
        return _observe_success(health, now, rules)
    return _observe_failure(health if operational else replace(health, work_failed=True), now, rules)


def find_allowance(health: Health, now: datetime, rules: HealthRules = DEFAULT_RULES) -> int | None:
    """How many attempts of this webhook may be in flight now; None: as many as its settings say."""
    if health.breaker is Breaker.CLOSED:
        return None
    if health.breaker is Breaker.HALF_OPEN:
        return health.ramp
    return 1 if _probe_due(health, now, rules) else 0


def is_failing(health: Health, now: datetime, rules: HealthRules = DEFAULT_RULES) -> bool:
    """The disable rule: nothing accepted for long, enough failed attempts, one in each of the last three windows."""
    return (
        rules.disable_after is not None
        and now - health.span_start_at >= rules.disable_after
        and health.failures >= rules.disable_failures
        and health.failed_windows == _ALL_WINDOWS
        and health.window == _window_of(health, now)
    )


def _observe_success(health: Health, now: datetime, rules: HealthRules) -> Observation:
    last = now if health.last_success_at is None else max(now, health.last_success_at)
    if health.breaker is Breaker.CLOSED:
        return Observation(Health(health.enabled_at, last))
    ramp = 2 if health.breaker is Breaker.OPEN else health.ramp * 2
    if ramp > rules.ramp_limit:
        return Observation(Health(health.enabled_at, last), (HealthEvent.CLOSED,))
    events = (HealthEvent.HALF_OPENED,) if health.breaker is Breaker.OPEN else ()
    recovering = Health(health.enabled_at, last, breaker=Breaker.HALF_OPEN, probes=health.probes, ramp=ramp)
    return Observation(recovering, events)


def _observe_failure(health: Health, now: datetime, rules: HealthRules) -> Observation:
    counted = _count_failure(health, now)
    changed = _BREAKER_FAILURE[health.breaker](counted, now, rules)
    events = []
    if changed.breaker is Breaker.OPEN and health.breaker is not Breaker.OPEN:
        events.append(HealthEvent.OPENED)
    if is_failing(changed, now, rules):
        events.append(HealthEvent.DISABLE)
    return Observation(changed, tuple(events))


def _count_failure(health: Health, now: datetime) -> Health:
    window = max(_window_of(health, now), health.window)  # a clock that stepped back opens no older window
    failed = (health.failed_windows << min(window - health.window, WINDOWS) | 1) & _ALL_WINDOWS
    first = health.first_failure_at or now
    return replace(health, failures=health.failures + 1, first_failure_at=first, window=window, failed_windows=failed)


def _fail_closed(health: Health, now: datetime, rules: HealthRules) -> Health:
    """Opens when failures keep coming for a while; ``first_failure_at`` was set when this one was counted."""
    lasted = max(now - (health.first_failure_at or now), timedelta(0))  # the clock is measured anew now and then
    return (
        _open(health, now, rules) if health.failures >= rules.open_failures and lasted >= rules.open_after else health
    )


def _fail_half_open(health: Health, now: datetime, rules: HealthRules) -> Health:
    """One failure among successes slows recovery down; only at one attempt at a time it opens again."""
    return replace(health, ramp=health.ramp // 2) if health.ramp > 1 else _open(health, now, rules)


def _fail_open(health: Health, now: datetime, rules: HealthRules) -> Health:
    """A probe failed; failures of attempts that were on the wire when it opened say nothing new."""
    return _open(health, now, rules) if _probe_due(health, now, rules) else health


_BREAKER_FAILURE: Final = {
    Breaker.CLOSED: _fail_closed,
    Breaker.HALF_OPEN: _fail_half_open,
    Breaker.OPEN: _fail_open,
}


def _open(health: Health, now: datetime, rules: HealthRules) -> Health:
    probe_at = later(now, grow(rules.probe_base, health.probes, rules.probe_cap))
    return replace(health, breaker=Breaker.OPEN, probes=health.probes + 1, probe_at=probe_at, ramp=1)


def _probe_due(health: Health, now: datetime, rules: HealthRules) -> bool:
    """Whether a probe is due, or further ahead than any probe is ever planned: then the clock has stepped."""
    return health.probe_at is None or not now < health.probe_at <= later(now, rules.probe_cap)


def _window_of(health: Health, now: datetime) -> int:
    return max((now - health.span_start_at) // WINDOW, 0)
