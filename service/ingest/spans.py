"""What ingest asks of tracing, when tracing is on; ``service.telemetry.spans`` has it. Off, nobody is asked at all.

Belongs here: the protocols, shared by the modules that consume, persist and announce. Does not belong here: contexts
that are only passed on (``service.domain.traces``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from service.ingest.poll import Record
from service.ports import NewMessage


class Consuming(Protocol):
    """Spans around the handling of what came in together."""

    def consume(self, records: Sequence[Record]) -> AbstractContextManager[object]:
        """A poll or a request, linked to the contexts that its records bring."""


class MessageSpan(Protocol):
    """The making of one message."""

    @property
    def trace(self) -> str:
        """The context that its attempts continue."""

    def end(self) -> None:
        """The message is committed. A span that is not ended is not exported."""


class IngestSpans(Consuming, Protocol):
    """All spans of ingest."""

    def persist(self, name: str, records: Sequence[Record] = ()) -> AbstractContextManager[object]:
        """The transaction, inside ``consume`` if that came first."""

    def create(self, message: NewMessage) -> MessageSpan:
        """A message, in the trace of the event that made it, linked to the transaction."""

    def find_trace_id(self) -> str | None:
        """The id of the trace under way."""
