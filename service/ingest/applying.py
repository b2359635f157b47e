"""One poll, one transaction: what the consumer and ``POST /v1/events`` hand over is applied, announced and committed.

Belongs here: the order of things. Does not belong here: Kafka (``worker``), reading bytes (``parsing``), SQL.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from service.domain.batches import Settling
from service.domain.events import JobEvent
from service.domain.jobs import EventOutcome, Job
from service.domain.profiles import NATIVE, ProfileSet
from service.domain.workspace import Reading, Workspace
from service.ingest.announcing import Announcement, Announcer
from service.ingest.lines import TransactionLines
from service.ingest.poison import DeadLetter, Skipped
from service.ingest.poll import Poll, PollResult, Record
from service.ingest.spans import IngestSpans
from service.ingest.transaction import IngestStore, IngestTransaction, Predecessor
from service.ports import Conflict

TRIES = 50  # each one means that another transaction has committed: somebody always gets on


class IngestObserver(Protocol):
    """Who wants to know what a committed transaction did."""

    def messages(self, scope: str, *, renotified: bool, count: int) -> None:
        """Count messages."""

    def deliveries_finished(self, state: str, count: int = 1) -> None:
        """Count deliveries that have left the queue."""

    def job_event_lag(self, seconds: float) -> None:
        """Note how long an event took from happening to being committed."""


@dataclass(slots=True)
class _Work:
    """What one try of one poll came to."""

    outcomes: list[EventOutcome | None] = field(default_factory=list)
    anomalies: Counter[str] = field(default_factory=Counter)


class Ingestor:
    """Applies polls. Safe to call from several tasks: the database orders them."""

    def __init__(
        self,
        store: IngestStore,
        profiles: ProfileSet,
        announcer: Announcer,
        settling: Settling,
        observer: IngestObserver,
        lines: TransactionLines | None = None,
        spans: IngestSpans | None = None,
    ) -> None:
        self._store = store
        self._profiles = profiles
        self._announcer = announcer
        self._settling = settling
        self._observer = observer
        self._lines = lines
        self._spans = spans

    async def ingest(self, poll: Poll) -> PollResult:
        """Apply one poll (its contract: ``service.ingest.poll``). Raises StoreUnavailable when the database is away."""
        began = self._lines.begin() if self._lines else 0.0
        with self._persisting("ingest", poll.records):
            result, announcement = await self._ingest_until_stored(poll)
            if self._lines:
                self._lines.ingested(began, poll, result, announcement)
        return result

    async def _ingest_until_stored(self, poll: Poll) -> tuple[PollResult, Announcement]:
        for _ in range(TRIES):
            try:
                return await self._ingest_once(poll)
            except Conflict:
                continue
        return await self._ingest_once(poll)

    def _persisting(self, name: str, records: Sequence[Record] = ()) -> AbstractContextManager[object]:
        return nullcontext() if self._spans is None else self._spans.persist(name, records)

    async def settle(self, batch_keys: Sequence[int]) -> int:
        """Finish those of these batches whose settle window is over; return how many did."""
        announcement, began = Announcement(), self._lines.begin() if self._lines else 0.0
        with self._persisting("settle"):
            with self._sending(announcement):
                async with self._store.transaction() as transaction:
                    workspace = await transaction.lock_settling(batch_keys)
                    finishing = workspace.settle(transaction.now, self._settling)
                    await self._announcer.announce(announcement, transaction, workspace, finishing)
            if self._lines:
                self._lines.settled(began, announcement)
        return len(finishing)

    async def _ingest_once(self, poll: Poll) -> tuple[PollResult, Announcement]:
        announcement, work = Announcement(), _Work()
        with self._sending(announcement):
            async with self._store.transaction(_list_events(poll.records), poll.owner, poll.positions) as transaction:
                lost = frozenset(poll.positions) - transaction.owned
                kept = [r for r in poll.records if r.partition not in lost]
                await transaction.bury([r for r in kept if isinstance(r.content, DeadLetter)])
                events = _list_events(kept)
                workspace = await transaction.lock(events) if events else Workspace()
                for record in poll.records:
                    work.outcomes.append(self._apply(workspace, record, work) if record.partition not in lost else None)
                if events:
                    await self._announce(announcement, transaction, workspace)
        for event in events:
            self._observer.job_event_lag(max(0.0, (transaction.now - event.occurred_at).total_seconds()))
        return PollResult(tuple(work.outcomes), lost, work.anomalies + announcement.anomalies), announcement

    @contextmanager
    def _sending(self, announcement: Announcement) -> Iterator[None]:
        """Around a transaction: what it queued is sent after the commit, or given up with it."""
        try:
            yield
        except BaseException:
            self._announcer.rolled_back(announcement)
            raise
        self._announcer.committed(announcement)
        for (scope, renotified), count in announcement.messages.items():
            self._observer.messages(scope, renotified=renotified, count=count)
        for state, count in announcement.finished.items():
            self._observer.deliveries_finished(state, count)

    async def _announce(self, announcement: Announcement, transaction: IngestTransaction, workspace: Workspace) -> None:
        await self._inherit(transaction, workspace)
        finishing = workspace.settle(transaction.now, self._settling)
        await self._announcer.announce(announcement, transaction, workspace, finishing)

    def _apply(self, workspace: Workspace, record: Record, work: _Work) -> EventOutcome:
        content = record.content
        if isinstance(content, DeadLetter):
            return EventOutcome.DEAD_LETTER
        if isinstance(content, Skipped):
            return content.outcome
        applied = workspace.apply(content, self._read(content))
        work.anomalies.update(applied.anomalies)
        return applied.outcome

    def _read(self, event: JobEvent) -> Reading:
        profile = self._profiles.find(event.source)
        assert profile is not None, "parsing refuses unknown sources"
        return Reading(profile.find_status(event.status), profile.find_error_code)

    async def _inherit(self, transaction: IngestTransaction, workspace: Workspace) -> None:
        """Look for the destination of the job before, for jobs that name none."""
        heirs = [(job, self._by_subject(job)) for job in _list_heirs(workspace)]
        heirs = [(job, by_subject) for job, by_subject in heirs if by_subject or job.previous_job_id is not None]
        found = await transaction.find_predecessors(heirs) if heirs else {}
        _inherit_within(workspace, heirs, found)

    def _by_subject(self, job: Job) -> bool:
        profile = self._profiles.find(job.source or NATIVE)
        return profile is not None and profile.rerun_by_subject and job.subject_id is not None


def _list_events(records: Sequence[Record]) -> list[JobEvent]:
    return [record.content for record in records if isinstance(record.content, JobEvent)]


def _list_heirs(workspace: Workspace) -> list[Job]:
    """Jobs that may inherit, in the order in which they were seen: one that still runs hands on what it inherits.

    A run that ends asks again: the job before it may have been given another destination meanwhile.
    """
    ended = {id(ending.job): ending.job for ending in workspace.endings}
    heirs = {id(job): job for job in workspace.touched.values()} | ended
    unnamed = (job for job in heirs.values() if job.webhook_id is None)
    return [job for job in unnamed if job.inherited_webhook_id is None or id(job) in ended]


def _inherit_within(
    workspace: Workspace, heirs: Sequence[tuple[Job, bool]], found: Mapping[tuple[str, str], Predecessor]
) -> None:
    """Give each heir what the job before it hands on: as this transaction leaves that job, else as it is stored."""
    earlier = _list_earlier(workspace)
    for job, by_subject in heirs:
        key, stored = (job.tenant_id, job.job_id), found.get((job.tenant_id, job.job_id))
        before = earlier.get(key) if by_subject and job.previous_job_id is None else None
        if before is None:
            before_id = job.previous_job_id or (stored.job_id if stored else "")
            before = workspace.jobs.get((job.tenant_id, before_id))
        if before is not None:
            job.inherited_webhook_id = before.webhook_id or before.inherited_webhook_id or job.inherited_webhook_id
        elif stored is not None:
            job.inherited_webhook_id = stored.webhook_id or job.inherited_webhook_id


def _list_earlier(workspace: Workspace) -> dict[tuple[str, str], Job]:
    """For each job, the job of its subject seen last before it, where this transaction is the first to see both."""
    earlier: dict[tuple[str, str], Job] = {}
    newest: dict[tuple[str, str], Job] = {}
    for key, job in workspace.touched.items():
        if job.subject_id is None or job.stored:
            continue
        subject = (job.tenant_id, job.subject_id)
        if subject in newest:
            earlier[key] = newest[subject]
        newest[subject] = job
    return earlier
