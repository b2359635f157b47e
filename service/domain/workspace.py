"""The jobs and batches that one transaction holds, and what an event does to them together.

Belongs here: membership, i.e. everything that concerns a job and a batch at once. A workspace is filled by whoever
holds the locks, takes events in order, and is then read for what to write and what to announce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from service.domain.batches import (
    Batch,
    Member,
    Settling,
    declare_total,
    end,
    enter,
    exchange,
    member_of,
    seal,
    settle,
)
from service.domain.endings import Endings, find_filed
from service.domain.events import BatchRef, EventType, JobEvent
from service.domain.incarnations import find_for_job, find_incarnation, goes_on, open_incarnation
from service.domain.jobs import EventOutcome, Job, Phase, fill_error_code, merge, read_phase

REMOVALS_KEPT = 20  # event ids for each job and batch

JobKey = tuple[str, str]  # tenant, job
NameKey = tuple[str, str]  # tenant, batch name


class Reading(NamedTuple):
    """What an event's profile makes of words: the event's public status (or ``none``), and what fills an empty code.

    ``find_error_code`` takes the word that a run ended with, None while it has not, and its subject's status.
    """

    status: str | None
    find_error_code: Callable[[str | None, str | None], str | None]


@dataclass(slots=True)
class Leaver:
    """A job that left a batch or was removed from it. ``removed_generation`` 0: it only moved away.

    ``event_ids`` are those of the ``job.removed`` events that spoke of it, the newest last.
    """

    batch_key: int
    job_id: str
    removed_generation: int = 0
    event_ids: tuple[str, ...] = ()
    changed: bool = False


class Applied(NamedTuple):
    """What became of one event."""

    outcome: EventOutcome
    anomalies: tuple[str, ...] = ()


@dataclass(slots=True)
class Workspace:
    """Jobs by (tenant, job), incarnations by (tenant, name) oldest first, leavers by (batch key, job).

    ``endings`` and ``deletions`` collect what is to be announced. Incarnations that are not stored yet have negative
    keys. ``removals`` are the ``job.removed`` events that were taken already: (tenant, batch name, job, event id).
    """

    jobs: dict[JobKey, Job] = field(default_factory=dict)
    incarnations: dict[NameKey, list[Batch]] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    leavers: dict[tuple[int, str], Leaver] = field(default_factory=dict)
    removals: set[tuple[str, str, str, str]] = field(default_factory=set)
    touched: dict[JobKey, Job] = field(default_factory=dict)
    endings: Endings = field(default_factory=Endings)
    deletions: list[tuple[Batch, datetime]] = field(default_factory=list)

    def add_batches(self, batches: Iterable[Batch]) -> None:
        """Put incarnations in, in any order."""
        for batch in batches:
            self.batches[batch.key] = batch
            known = self.incarnations.setdefault((batch.tenant_id, batch.name), [])
            known.append(batch)
            known.sort(key=lambda one: one.seq)

    def apply(self, event: JobEvent, reading: Reading) -> Applied:
        """Let one event do its work on the aggregates."""
        if event.type is EventType.BATCH_DELETED:
            return self._delete_batch(event)
        if event.type is EventType.BATCH_SEALED:
            return self._seal_batch(event)
        if event.type is EventType.JOB_REMOVED:
            return self._remove_job(event)
        return self._merge_job(event, reading)

    def settle(self, now: datetime, settling: Settling) -> list[Batch]:
        """Decide, at the end of the transaction, which of the changed batches finish now; in key order."""
        changed = sorted((b for b in self.batches.values() if b.changed), key=lambda b: b.key)
        return [batch for batch in changed if settle(batch, now, settling)]

    # Job events

    def _merge_job(self, event: JobEvent, reading: Reading) -> Applied:
        key = (event.tenant_id, event.job_id)
        job = self.jobs.get(key) or self._new_job(key)
        before, batch_before = member_of(job), self._live_batch(job)
        if job.phase.terminal and (event.generation or 1) > job.generation:
            self.endings.set_aside(job)
        filed_before = find_filed(job, batch_before)
        target, conflict = self._place(job, event, reading)
        merged = merge(job, event, reading.status)
        fill_error_code(job, reading.find_error_code)
        if target is not None:
            self._join(job, target, event.generation or 1)
        self._account(job, before, batch_before, event)
        self.touched[key] = job
        self.endings.note(job, event, merged, filed_before, find_filed(job, self._live_batch(job)))
        outcome = EventOutcome.CONFLICT if conflict and merged.outcome is EventOutcome.DUPLICATE else merged.outcome
        return Applied(outcome, merged.anomalies + (("batch_conflict",) if conflict else ()))

    def _new_job(self, key: JobKey) -> Job:
        job = self.jobs[key] = Job(*key)
        return job

    def _place(self, job: Job, event: JobEvent, reading: Reading) -> tuple[Batch | None, bool]:
        """Return the incarnation that the event puts the job in (None: no change) and whether that is a conflict."""
        ref = event.batch
        if ref is None:
            return None, False
        current = self.batches.get(job.batch_key) if job.batch_key is not None else None
        known, generation = self._known(event.tenant_id, ref), event.generation or 1
        same_rank = generation == job.named_generation
        if current is None or generation > job.named_generation or (same_rank and goes_on(known, ref, current)):
            target = find_for_job(known, ref, job, current, generation) or self._open(event.tenant_id, ref)
            self._describe(target, event, ref)
            return target, False
        if same_rank:
            return None, self._hear(event, ref, current)
        self._hear_past(job, event, ref, read_phase(event, reading.status))
        return None, False

    def _hear(self, event: JobEvent, ref: BatchRef, current: Batch) -> bool:
        """Take what an event that moves nothing says of a batch. Returns whether it contradicts the job's own."""
        means = current if self._same_batch(current, ref) else self._find_known(event.tenant_id, ref)
        if means is not None:
            self._describe(means, event, ref)
        return means is not current

    def _hear_past(self, job: Job, event: JobEvent, ref: BatchRef, phase: Phase) -> None:
        """Take what an overtaken event says of a batch: the total, and that the job has been a member there.

        Without an id it may speak of an incarnation that has ended, where the name has had more than one.
        """
        known = self._known(event.tenant_id, ref)
        if ref.id is None and known and known[-1].seq > 1:
            return
        batch = find_incarnation(known, ref) if known else self._open(event.tenant_id, ref)
        if batch is None or batch.ended:
            return
        self._describe(batch, event, ref)
        if phase is Phase.STORED:
            return
        if job.batch_key == batch.key:
            enter(batch, job)
        elif (batch.key, job.job_id) not in self.leavers:
            self.leavers[batch.key, job.job_id] = Leaver(batch.key, job.job_id, changed=True)
            batch.entered += 1
            batch.has_leavers = batch.changed = True

    def _known(self, tenant_id: str, ref: BatchRef) -> list[Batch]:
        return self.incarnations.get((tenant_id, ref.name), [])

    def _same_batch(self, batch: Batch, ref: BatchRef) -> bool:
        if batch.name != ref.name:
            return False
        return ref.id is None or ref.id == batch.incarnation_id

    def _find_known(self, tenant_id: str, ref: BatchRef) -> Batch | None:
        return find_incarnation(self._known(tenant_id, ref), ref)

    def _join(self, job: Job, batch: Batch, generation: int) -> None:
        job.named_generation = generation
        if job.batch_key == batch.key:
            return
        if job.batch_key is not None and job.entered:
            self._leave(job, job.batch_key)
        leaver = self.leavers.get((batch.key, job.job_id))
        job.batch_key = batch.key
        job.entered = leaver is not None
        job.removed_generation = leaver.removed_generation if leaver else 0
        job.batch_generation = None

    def _leave(self, job: Job, batch_key: int) -> None:
        where = (batch_key, job.job_id)
        if where not in self.leavers:
            self.leavers[where] = Leaver(batch_key, job.job_id, job.removed_generation, changed=True)
        batch = self.batches[batch_key]
        batch.has_leavers = batch.changed = True

    def _account(self, job: Job, before: Member | None, batch_before: Batch | None, event: JobEvent) -> None:
        """Tell the batches concerned what they now see of the job."""
        batch, after = self._live_batch(job), member_of(job)
        if batch_before is not None and batch_before is not batch:
            exchange(batch_before, before, None)
            before = None
        if batch is None:
            return
        if batch is not batch_before:
            before = None
        exchange(batch, before, after)
        if after is not None:
            enter(batch, job)
        if after != before:
            batch.trace = event.trace
            batch.loud = batch.loud or not event.silent

    def _live_batch(self, job: Job) -> Batch | None:
        batch = self.batches.get(job.batch_key) if job.batch_key is not None else None
        return None if batch is None or batch.ended else batch

    # Events about batches

    def _remove_job(self, event: JobEvent) -> Applied:
        job, ref = self.jobs.get((event.tenant_id, event.job_id)), event.batch or BatchRef("")
        repeat = (event.tenant_id, ref.name, event.job_id, event.event_id)
        if repeat in self.removals:
            return Applied(EventOutcome.DUPLICATE)
        self.removals.add(repeat)
        batch = self._batch_of_removal(event, ref, job)
        generation = event.generation or (job.generation if job and job.generation else 1)
        leaver = self.leavers.get((batch.key, event.job_id))
        if batch.ended or (leaver is not None and leaver.removed_generation >= generation):
            if event.generation is None:
                self._note_removal(event, batch, leaver.removed_generation if leaver else 0)
            return Applied(EventOutcome.STALE)
        self._remove(event, job, batch, generation)
        return Applied(EventOutcome.APPLIED)

    def _note_removal(self, event: JobEvent, batch: Batch, generation: int) -> None:
        """Keep the event's id: without a generation it would do something else when it comes again later."""
        where = (batch.key, event.job_id)
        event_ids = (*(self.leavers[where].event_ids if where in self.leavers else ()), event.event_id)
        self.leavers[where] = Leaver(*where, generation, event_ids[-REMOVALS_KEPT:], changed=True)
        batch.has_leavers = batch.changed = True

    def _batch_of_removal(self, event: JobEvent, ref: BatchRef, job: Job | None) -> Batch:
        current = self.batches.get(job.batch_key) if job and job.batch_key is not None else None
        generation = event.generation or (job.generation if job else 0)
        known = self._known(event.tenant_id, ref)
        found = find_for_job(known, ref, job, current, generation) if job else find_incarnation(known, ref)
        batch = found or self._open(event.tenant_id, ref)
        self._describe(batch, event, ref)
        return batch

    def _remove(self, event: JobEvent, job: Job | None, batch: Batch, generation: int) -> None:
        where = (batch.key, event.job_id)
        known_before = where in self.leavers
        self._note_removal(event, batch, generation)
        batch.loud = batch.loud or not event.silent
        batch.trace = event.trace
        if job is None or job.batch_key != batch.key:
            batch.entered += not known_before
            return
        before = member_of(job)
        enter(batch, job)
        job.removed_generation = generation
        self.touched[event.tenant_id, event.job_id] = job
        exchange(batch, before, member_of(job))

    def _seal_batch(self, event: JobEvent) -> Applied:
        ref = event.batch or BatchRef("")
        if any(batch.sealed_by == event.event_id for batch in self._known(event.tenant_id, ref)):
            return Applied(EventOutcome.DUPLICATE)
        batch = self._find_known(event.tenant_id, ref) or self._open(event.tenant_id, ref)
        if batch.ended:
            return Applied(EventOutcome.STALE)
        self._describe(batch, event, ref)
        seal(batch, event.event_id)
        batch.trace = event.trace
        return Applied(EventOutcome.APPLIED)

    def _delete_batch(self, event: JobEvent) -> Applied:
        ref = event.batch or BatchRef("")
        known = self._known(event.tenant_id, ref)
        if any(batch.ended_by == event.event_id for batch in known):
            return Applied(EventOutcome.DUPLICATE)
        batch = find_incarnation(known, ref)
        if batch is None and ref.id is not None:
            batch = self._open(event.tenant_id, ref)
        if batch is None or batch.ended:
            return Applied(EventOutcome.STALE)
        end(batch, event.event_id, event.occurred_at)
        self.deletions.append((batch, event.occurred_at))
        return Applied(EventOutcome.APPLIED)

    def _describe(self, batch: Batch, event: JobEvent, ref: BatchRef) -> None:
        if batch.ended:
            return
        declare_total(batch, ref.total, ref.version)
        if batch.source is None:
            batch.source, batch.changed = event.source, True

    def _open(self, tenant_id: str, ref: BatchRef) -> Batch:
        known = self._known(tenant_id, ref)
        key = min([0, *self.batches]) - 1
        batch = open_incarnation(known, tenant_id, ref, key)
        self.add_batches([batch])
        return batch
