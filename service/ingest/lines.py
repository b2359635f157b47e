"""One wide log line for a committed ingest transaction: which get one, and what it says.

Belongs here: everything that an operator wants to know of one transaction, in one place. A transaction in which
something is odd, or that was slow, always has its line. The ordinary ones are as many as there are polls and requests:
they are written by sample, or all of them at level ``debug``. Does not belong here: metrics, which see every one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome
from service.domain.traces import trace_id_of
from service.ingest.announcing import Announcement
from service.ingest.poll import Poll, PollResult
from service.ingest.transaction import Retired
from service.lifecycle import Clock, Rng

SLOW: Final = 1.0  # seconds, from which on a transaction always has its line
ORDINARY: Final = frozenset(
    {
        EventOutcome.APPLIED,
        EventOutcome.DUPLICATE,
        EventOutcome.STALE,
        EventOutcome.TOMBSTONE,
        EventOutcome.EXPIRED,
    }
)


@dataclass(frozen=True, slots=True)
class LineRules:
    """``sample``: share of ordinary transactions that get a line; ``everything``: they all do, at level ``debug``."""

    sample: float = 0.0
    everything: bool = False


class TransactionLines:
    """Writes lines by ``tell(event, **fields)`` at the level of news, and by ``debug`` what only debugging wants."""

    def __init__(
        self,
        tell: Callable[..., object],
        debug: Callable[..., object],
        clock: Clock,
        rng: Rng,
        rules: LineRules,
        find_trace_id: Callable[[], str | None] = lambda: None,
    ) -> None:
        """``find_trace_id`` gives the trace under way, if tracing is on."""
        self._tell = tell
        self._debug = debug
        self._clock = clock
        self._rng = rng
        self._rules = rules
        self._find_trace_id = find_trace_id

    def begin(self) -> float:
        """The instant that ``ingested`` and ``settled`` measure from."""
        return self._clock.monotonic()

    def ingested(self, began: float, poll: Poll, result: PollResult, announcement: Announcement) -> None:
        """A poll was committed; a batch that was deleted by it always has a line of its own."""
        for each in announcement.retired:
            self._tell("batch_deleted", **_describe_deletion(each))
        duration, counts = self._clock.monotonic() - began, result.counts
        odd = bool(result.lost or result.anomalies) or not counts.keys() <= ORDINARY
        write = self._choose(notable=odd or duration >= SLOW)
        if write is not None:
            trace_id = _find_common_trace(poll) or self._find_trace_id()
            write("ingested", **_describe_poll(poll, result, counts), **_describe(announcement, duration, trace_id))

    def settled(self, began: float, announcement: Announcement) -> None:
        """Batches whose settle window is over were looked at; only finishes are worth a line."""
        duration = self._clock.monotonic() - began
        write = self._choose(notable=duration >= SLOW) if announcement.finishes else None
        if write is not None:
            write("settled", **_describe(announcement, duration, self._find_trace_id()))

    def _choose(self, *, notable: bool) -> Callable[..., object] | None:
        if notable or (self._rules.sample and self._rng.uniform() < self._rules.sample):
            return self._tell
        return self._debug if self._rules.everything else None


def _describe_deletion(retired: Retired) -> dict[str, object]:
    batch = retired.batch
    fields: dict[str, object] = {
        "tenant_id": batch.tenant_id,
        "batch": batch.name,
        "batch_id": batch.incarnation_id,
        "generation": batch.generation,
        "canceled": retired.canceled,
    }
    return fields if retired.webhook_id is None else {**fields, "webhook_id": retired.webhook_id}


def _describe_poll(poll: Poll, result: PollResult, counts: Counter[EventOutcome]) -> dict[str, object]:
    """Records, what became of them, and how far each partition is ingested now; ``http`` for a request."""
    reached = [f"{topic}/{number}@{offset}" for (topic, number), offset in sorted(poll.positions.items())]
    fields: dict[str, object] = {"records": len(poll.records)}
    fields.update((outcome.value, count) for outcome, count in counts.items())
    if result.anomalies:
        fields["anomalies"] = dict(result.anomalies)
    if result.lost:
        fields["lost"] = [f"{topic}/{number}" for topic, number in sorted(result.lost)]
    return {**fields, "partitions": reached or "http"}


def _describe(announcement: Announcement, duration: float, trace_id: str | None) -> dict[str, object]:
    fields: dict[str, object] = {
        "finishes": announcement.finishes,
        "messages": announcement.messages.total(),
        "deliveries": announcement.queued,
        "handed_over": len(announcement.handed),
        "duration": round(duration, 3),
    }
    return fields if trace_id is None else {**fields, "trace_id": trace_id}


def _find_common_trace(poll: Poll) -> str | None:
    """The one trace that all events of the poll are of, if there is one."""
    traces = {record.content.trace for record in poll.records if isinstance(record.content, JobEvent)}
    ids = {trace_id_of(trace) if trace else None for trace in traces}
    return ids.pop() if len(ids) == 1 else None
