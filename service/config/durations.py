"""Durations as people write them in settings: ``24h``, ``5s``, ``1h30m``, ``400d``, ``250ms``, or bare seconds.

Belongs here: reading and writing that one grammar. Which durations a setting allows is in ``fields``.
"""

from __future__ import annotations

import re
from datetime import timedelta

UNITS = {
    "ms": timedelta(milliseconds=1),
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}
LONGEST = timedelta(days=3660)
_PART = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,6})?)(ms|s|m|h|d|w)", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,6})?", re.ASCII)
_FORM = "must be a duration such as 30s, 24h or 400d"


def parse_duration(value: object) -> timedelta:
    """The duration that ``value`` (text, a number of seconds, or a ``timedelta``) stands for.

    Raises:
        ValueError: another form, negative, or longer than ten years. The message does not repeat the text.
    """
    if isinstance(value, timedelta):
        return _bounded(value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(_FORM)  # noqa: TRY004 - pydantic collects ValueError
    text = str(value).strip().lower()
    if _SECONDS.fullmatch(text):
        return _bounded(timedelta(seconds=float(text)))
    return _bounded(_sum_of_parts(text))


def _sum_of_parts(text: str) -> timedelta:
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(_FORM)
    try:
        return sum((float(number) * UNITS[unit] for number, unit in parts), timedelta())
    except OverflowError:
        raise ValueError(_FORM) from None


def _bounded(value: timedelta) -> timedelta:
    if not timedelta() <= value <= LONGEST:
        raise ValueError("must be a duration of at most ten years and not negative")
    return value


def format_duration(value: timedelta) -> str:
    """The shortest text that :func:`parse_duration` reads back: ``14h``, ``90s``, ``250ms``; one day is ``24h``."""
    if not value:
        return "0s"
    for unit in ("d", "h", "m", "s", "ms"):
        count, rest = divmod(value, UNITS[unit])
        if not rest and (unit, count) != ("d", 1):
            return f"{count}{unit}"
    return f"{value.total_seconds():.6f}".rstrip("0") + "s"
