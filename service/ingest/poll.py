"""What passes between the Kafka edge (or ``POST /v1/events``) and the ingest transaction.

Belongs here: plain values, and the contract of the transaction. Does not belong here: reading bytes (parsing), Kafka
(worker), SQL (``service.store``).

The contract of ``Ingests.ingest(poll) -> PollResult``, all in one transaction:

1. The fence, with ``poll.owner`` and ``poll.positions``: stores the offsets of the partitions that are still owned.
   Records of the others are left out (outcome None) and their partitions are ``PollResult.lost``.
2. Records whose content is a JobEvent are applied, in the order of ``poll.records``.
3. Records whose content is a DeadLetter are stored as such; a Skipped one only has its outcome counted.

It raises ``StoreUnavailable`` when the database is away (the caller backs off and offers the same poll again). Any
other exception means that some record of this poll cannot be stored: the caller bisects, and offers the culprit once
more as a DeadLetter with reason ``internal_error``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome
from service.ingest.poison import DeadLetter, Skipped

Parsed = JobEvent | DeadLetter | Skipped
Headers = tuple[tuple[str, bytes | None], ...]


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int


# Events that came over HTTP: in no partition, so that no fence and no offset applies.
NOWHERE = Partition("", -1)


class LogBounds(NamedTuple):
    """What a partition's log holds: offsets from ``first`` up to, not including, ``end``."""

    first: int
    end: int


class StoredOffset(NamedTuple):
    """How far a partition was ingested (None: never) and the end offset of its first read."""

    next_offset: int | None
    catch_up_until: int


class Record(NamedTuple):
    """One record as it came (``key``, ``headers``, ``value``, kept for a dead letter) and as it was read (``content``).

    ``offset`` is its place in ``partition``.
    """

    partition: Partition
    offset: int
    content: Parsed
    value: bytes | None = None
    key: bytes | None = None
    headers: Headers = ()

    def condemned(self, letter: DeadLetter) -> Record:
        """Return the same record as a dead letter."""
        return self._replace(content=letter)


@dataclass(frozen=True, slots=True)
class Poll:
    """Records for one transaction.

    ``positions`` holds the offset to store per partition (the one after its last record here); every record's
    partition is in it, except ``NOWHERE``. ``owner`` is the fence: only partitions that still carry it are written.
    A poll without a partition (HTTP) has neither.
    """

    records: tuple[Record, ...]
    positions: Mapping[Partition, int] = field(default_factory=dict)
    owner: str = ""


@dataclass(frozen=True, slots=True)
class PollResult:
    """What one committed transaction did.

    ``outcomes`` has one entry per record of the poll, in its order; None for a record of a lost partition.
    ``anomalies`` counts kinds of ``event_anomalies_total`` found while applying, those that reading found not included.
    """

    outcomes: tuple[EventOutcome | None, ...]
    lost: frozenset[Partition] = frozenset()
    anomalies: Mapping[str, int] = field(default_factory=dict)

    @property
    def counts(self) -> Counter[EventOutcome]:
        """Records per outcome; those of lost partitions are in none."""
        return Counter(outcome for outcome in self.outcomes if outcome is not None)


class Ingests(Protocol):
    """The ingest transaction, as the Kafka worker and ``POST /v1/events`` use it; ``applying.Ingestor`` is one."""

    async def ingest(self, poll: Poll) -> PollResult:
        """Apply one poll, by the contract above. Raises StoreUnavailable, and whatever one record causes."""
