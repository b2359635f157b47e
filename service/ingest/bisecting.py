"""A poll on its way into the database: halved until the record that cannot be stored stands alone.

Belongs here: which parts of a poll are offered next. Does not belong here: what a transaction does (applying) and what
happens while the database is away (worker, the API).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace

from service.ingest.poison import DeadLetter, Reason, Skipped
from service.ingest.poll import Poll, PollResult, Record
from service.ports import Conflict, StoreUnavailable

Ingest = Callable[[Poll], Awaitable[PollResult]]
OnDone = Callable[[Poll, PollResult], object]
OnCulprit = Callable[[Record, Exception], object]


class Offer:
    """What is left of one poll. ``run`` may be called again after StoreUnavailable and goes on where it was."""

    def __init__(self, poll: Poll, on_done: OnDone, on_culprit: OnCulprit) -> None:
        """``on_done`` is called after each commit, in order; ``on_culprit`` for a record that becomes a dead letter."""
        self._parts = deque([poll])
        self._on_done = on_done
        self._on_culprit = on_culprit

    async def run(self, ingest: Ingest) -> int:
        """Offer until nothing is left; return how many transactions were committed this time.

        Raises:
            StoreUnavailable: the database is away, or too busy with others.
            Exception: what was refused for a record that cannot be its fault any more; a bug of ours.
        """
        committed = 0
        while self._parts:
            try:
                result = await ingest(self._parts[0])
            except StoreUnavailable:
                raise
            except Conflict as error:
                raise StoreUnavailable(str(error)) from error
            except Exception as error:  # noqa: BLE001 - whatever it is, it costs the one record that causes it
                self._divide(error)
            else:
                committed += 1
                self._on_done(self._parts.popleft(), result)
        return committed

    def _divide(self, error: Exception) -> None:
        part = self._parts.popleft()
        if len(part.records) > 1:
            self._parts.extendleft(reversed(split(part)))
        else:
            self._parts.appendleft(self._condemn(part, error))

    def _condemn(self, part: Poll, error: Exception) -> Poll:
        if not part.records or isinstance(part.records[0].content, (DeadLetter, Skipped)):
            raise error
        record = part.records[0]
        self._on_culprit(record, error)
        return replace(part, records=(record.condemned(DeadLetter(Reason.INTERNAL_ERROR, type(error).__name__)),))


def split(poll: Poll) -> tuple[Poll, Poll]:
    """Halve a poll; the first half's offsets stop before the second half's records."""
    middle = len(poll.records) // 2
    first, second = poll.records[:middle], poll.records[middle:]
    reached = {record.partition: record.offset + 1 for record in first if record.partition in poll.positions}
    later = {record.partition for record in second}
    before = {p: offset if p in later else poll.positions[p] for p, offset in reached.items()}
    after = {p: offset for p, offset in poll.positions.items() if p in later}
    return replace(poll, records=first, positions=before), replace(poll, records=second, positions=after)
