"""Raw records of a poll -> records that the transaction takes.

Belongs here: what the clock and the record's place decide: ``silent`` and ``expired`` (chapter 1, Promises). Does not
belong here: what is in a value (parsing).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Protocol

from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome
from service.ingest.parsing import Parser
from service.ingest.poison import DeadLetter, Reason, Skipped
from service.ingest.poll import NOWHERE, Headers, Parsed, Partition, Record
from service.lifecycle import Clock

_EARLIEST = datetime.min.replace(tzinfo=UTC)


class RawRecord(Protocol):
    """A record as the broker hands it over."""

    @property
    def offset(self) -> int: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...


class Reader:
    """Reads records with one parser, one clock and two ages."""

    def __init__(
        self,
        parser: Parser,
        clock: Clock,
        *,
        notify_max_age: timedelta,
        retention_state: timedelta,
        on_bug: Callable[[Exception], object] = lambda _: None,
    ) -> None:
        """``on_bug`` is called with what the parser must never raise; the record becomes a dead letter."""
        self._parser = parser
        self._clock = clock
        self._notify_max_age = notify_max_age
        self._retention_state = retention_state
        self._on_bug = on_bug

    def read(self, partition: Partition, raws: Iterable[RawRecord], catch_up_until: int = 0) -> list[Record]:
        """Read records of one partition; those below ``catch_up_until`` that are too old to notify about are silent."""
        now = self._clock.now()
        quiet_before, expired_before = _earlier(now, self._notify_max_age), _earlier(now, self._retention_state)
        records = []
        for raw in raws:
            content = self._parse(raw.value, raw.headers)
            if isinstance(content, JobEvent) and content.occurred_at < quiet_before:
                content = _judge_old(content, expired_before, silent=raw.offset < catch_up_until)
            records.append(Record(partition, raw.offset, content, raw.value, raw.key, raw.headers))
        return records

    def read_alone(self, value: bytes, headers: Headers = ()) -> Record:
        """Read an event that is in no partition, over HTTP or from the dead letters: never silent."""
        content = self._parse(value, headers)
        if isinstance(content, JobEvent):
            content = _judge_old(content, _earlier(self._clock.now(), self._retention_state), silent=False)
        return Record(NOWHERE, 0, content, value)

    def _parse(self, value: bytes | None, headers: Headers) -> Parsed:
        try:
            return self._parser.parse(value, headers)
        except Exception as error:  # noqa: BLE001 - a bug met in one record costs that record
            self._on_bug(error)
            return DeadLetter(Reason.INTERNAL_ERROR, type(error).__name__)


def _judge_old(event: JobEvent, expired_before: datetime, *, silent: bool) -> JobEvent | Skipped:
    if event.occurred_at < expired_before:
        return Skipped(EventOutcome.EXPIRED, event)
    return replace(event, silent=True) if silent else event


def _earlier(now: datetime, age: timedelta) -> datetime:
    try:
        return now - age
    except OverflowError:
        return _EARLIEST
