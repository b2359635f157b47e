"""When the next attempt is due: retry steps, growth, caps, jitter, ``Retry-After``.

Belongs here: arithmetic on durations and instants that are handed in. Does not belong here: whether there is a next
attempt at all (``outcomes``), and any clock or random source (the caller reads and draws them).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from service.domain.instants import LATEST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MAX_STEPS: Final = 30
MIN_STEP: Final = timedelta(seconds=1)
MAX_TOTAL: Final = timedelta(days=30)
DEFAULT_SPREAD: Final = 0.2
RETRY_AFTER_CAP: Final = timedelta(hours=24)
HOLD_CAP: Final = timedelta(hours=1)
HOLD_STATUSES: Final = frozenset({429, 503})
LAST_INSTANT: Final = LATEST

_OWS: Final = " \t"
_SECONDS_DIGITS: Final = 9  # more digits than this are far above the cap, and int() never sees them

_NAMES: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTHS: Final = {name: number for number, name in enumerate(_NAMES, 1)}
_MONTH: Final = f"(?P<month>{'|'.join(_NAMES)})"
_TIME: Final = "(?P<hour>[0-9]{2}):(?P<minute>[0-9]{2}):(?P<second>[0-9]{2})"
_ZONE: Final = "(?:GMT|UTC|[+-]0000)"
# RFC 9110, section 5.6.7: IMF-fixdate, RFC 850 date, asctime date. A date without a zone is UTC.
_DATES: Final = (
    re.compile(
        rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), (?P<day>[0-9]{{2}}) {_MONTH} (?P<year>[0-9]{{4}}) {_TIME}(?: {_ZONE})?"
    ),
    re.compile(
        rf"(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day, (?P<day>[0-9]{{2}})-{_MONTH}-(?P<year>[0-9]{{2}}) {_TIME}(?: {_ZONE})?"
    ),
    re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH} (?P<day>[0-9 ][0-9]) {_TIME} (?P<year>[0-9]{{4}})"),
)


@dataclass(frozen=True, slots=True)
class Schedule:
    """Waits between attempts: ``steps[n]`` follows failed attempt ``n + 1``, so n steps make at most n + 1 attempts.

    ``spread`` is the jitter's share of a step, 0 to 1: 0.2 means ± 20 %.
    Raises ValueError, one clear line, when a bound of chapter 4 is broken.
    """

    steps: tuple[timedelta, ...]
    spread: float = DEFAULT_SPREAD

    def __post_init__(self) -> None:
        if problem := find_schedule_problem(self.steps):
            raise ValueError(problem)
        if not 0 <= self.spread <= 1:
            raise ValueError(f"retry jitter must be between 0 and 1, not {self.spread}")

    @property
    def total(self) -> timedelta:
        """The sum of all steps without jitter: how long a delivery is tried."""
        return sum(self.steps, timedelta())

    @property
    def seconds(self) -> list[int]:
        """The steps as whole seconds, the form of the API and the database."""
        return [int(step.total_seconds()) for step in self.steps]

    def find_delay(self, attempt: int, unit: float) -> timedelta | None:
        """Wait after failed attempt ``attempt`` (first = 1), or None when it was the last.

        ``unit`` is a random number in [0, 1): 0 is the early end of the jitter, 0.5 the step itself.
        """
        if not 1 <= attempt <= len(self.steps):
            return None
        return self.steps[attempt - 1] * (1 + self.spread * (2 * unit - 1))

    def find_due_at(self, attempt: int, now: datetime, unit: float, asked: timedelta | None = None) -> datetime | None:
        """Instant of the attempt after failed attempt ``attempt``, or None when there is none.

        ``asked`` is what ``Retry-After`` wants. The answer is neither before it (jitter comes after it, so that a
        thousand deliveries told the same instant do not meet there) nor before our own step.
        """
        delay = self.find_delay(attempt, unit)
        if delay is None:
            return None
        if asked is not None:
            delay = max(delay, asked * (1 + self.spread * unit))
        return later(now, delay)


@dataclass(frozen=True, slots=True)
class RetryAfter:
    """What a receiver asked for: ``wait`` from now, at most 24 h; ``clamped`` when it asked for more (log it)."""

    wait: timedelta
    clamped: bool = False


def find_schedule_problem(steps: Sequence[timedelta]) -> str | None:
    """The first bound that these steps break, as a sentence, or None."""
    if not 1 <= len(steps) <= MAX_STEPS:
        return f"a retry schedule has 1 to {MAX_STEPS} steps, not {len(steps)}"
    if any(step < MIN_STEP for step in steps):
        return "every step of a retry schedule is at least 1 second"
    if any(step % MIN_STEP for step in steps):
        return "the steps of a retry schedule are whole seconds"
    if any(step > MAX_TOTAL for step in steps) or sum(steps, timedelta()) > MAX_TOTAL:
        return f"the steps of a retry schedule add up to at most {MAX_TOTAL.days} days"
    return None


def parse_seconds(values: Iterable[object]) -> tuple[timedelta, ...]:
    """Read a list of whole seconds, the form of the API. Raises ValueError for anything but bounded integers."""
    steps = tuple(_parse_whole(value) for value in values)
    if problem := find_schedule_problem(steps):
        raise ValueError(problem)
    return steps


def grow(base: timedelta, count: int, cap: timedelta) -> timedelta:
    """``base * 2 ** count``, at most ``cap``; the cap is applied before the arithmetic, so nothing overflows."""
    wait = min(base, cap)
    if wait <= timedelta():
        return timedelta()
    for _ in range(count):
        if wait > cap // 2:
            return cap
        wait *= 2
    return wait


def later(instant: datetime, delay: timedelta) -> datetime:
    """``instant + delay``, at most the last instant of year 9999."""
    return LAST_INSTANT if delay > LAST_INSTANT - instant else instant + delay


def parse_retry_after(values: Sequence[str], now: datetime) -> RetryAfter | None:
    """Read the values of all ``Retry-After`` headers of one failed answer (RFC 9110, section 10.2.3).

    A value is ASCII digits (seconds) or one of the three HTTP dates; anything else is ignored. Of several valid ones
    the longest counts. A date in the past is a wait of zero. Never raises.
    """
    waits = [wait for value in values if (wait := _parse_wait(value.strip(_OWS), now)) is not None]
    if not waits:
        return None
    wait = max(*waits, timedelta())
    return RetryAfter(min(wait, RETRY_AFTER_CAP), clamped=wait > RETRY_AFTER_CAP)


def find_hold_until(status: int | None, asked: RetryAfter | None, now: datetime) -> datetime | None:
    """Until when a whole webhook waits after this answer: only on 429 and 503, at most 1 h."""
    if status not in HOLD_STATUSES or asked is None or not asked.wait:
        return None
    return later(now, min(asked.wait, HOLD_CAP))


def _parse_whole(value: object) -> timedelta:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("a retry step is a whole number of seconds")  # noqa: TRY004 (one kind of error for bad input)
    return _bounded(value)


def _bounded(seconds: int) -> timedelta:
    """A duration that cannot overflow: whatever is out of bounds stays out of bounds, just less so."""
    limit = int(MAX_TOTAL.total_seconds()) + 1
    return timedelta(seconds=max(0, min(seconds, limit)))


def _parse_wait(value: str, now: datetime) -> timedelta | None:
    if value.isascii() and value.isdigit():
        digits = value.lstrip("0")
        return timedelta(seconds=int(digits or "0")) if len(digits) <= _SECONDS_DIGITS else timedelta.max
    at = _parse_http_date(value, now)
    return None if at is None else at - now


def _parse_http_date(value: str, now: datetime) -> datetime | None:
    match = next((match for date in _DATES if (match := date.fullmatch(value))), None)
    if match is None:
        return None
    year = int(match["year"])
    if len(match["year"]) == 2:  # noqa: PLR2004 (RFC 850 years have two digits)
        year = _full_year(year, now.year)
    second = min(int(match["second"]), 59) if match["second"] == "60" else int(match["second"])  # a leap second
    try:
        return datetime(
            year,
            _MONTHS[match["month"]],
            int(match["day"]),
            int(match["hour"]),
            int(match["minute"]),
            second,
            tzinfo=UTC,
        )
    except ValueError:  # 31 February, 25 o'clock, year 0
        return None


def _full_year(year: int, this_year: int) -> int:
    """The latest year with these two last digits that is not more than 50 years ahead (RFC 9110, section 5.6.7)."""
    latest = this_year + 50
    return latest - (latest - year) % 100
