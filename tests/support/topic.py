"""A topic told to the state machines, in memory: the part that the store and the announcer play around a workspace.

Like the store it hands a workspace copies of only those rows that the ingest transaction would lock, and keeps only
what is marked as touched or changed.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import count

from service.domain.batches import Batch, Member, Settling, finish, member_of, recount
from service.domain.events import BatchRef, EventType, JobEvent
from service.domain.identity import batch_message_id
from service.domain.jobs import Job
from service.domain.profiles import Profile
from service.domain.workspace import Applied, Leaver, Reading, Workspace

NOW = datetime(2026, 11, 30, 9, tzinfo=UTC)
SECOND = timedelta(seconds=1)
SETTLING = Settling(default=2 * SECOND, cancel_grace=5 * SECOND)
TENANT = "acct_42"
WORDS = ("queued", "processing", "succeeded", "failed", "canceled")
PROFILE = Profile("native", {**{word: word for word in WORDS}, "pending_upload": "none", "expired": "failed"})

_serial = count(1)


def event(type_, job_id="", batch="b", **said):
    """An event of the batch named ``batch`` (a reference, a name or None); later ones happen later."""
    number = next(_serial)
    ref = BatchRef(batch) if isinstance(batch, str) else batch
    fields = {"event_id": f"evt_{number}", "source": "native", "occurred_at": NOW + number * SECOND, **said}
    return JobEvent(type=EventType(type_), tenant_id=TENANT, job_id=job_id, batch=ref, **fields)


def queued(job_id, batch="b", **said):
    return event("job.queued", job_id, batch, **said)


def started(job_id, batch="b", **said):
    return event("job.started", job_id, batch, **said)


def completed(job_id, batch="b", status="succeeded", **said):
    return event("job.completed", job_id, batch, status=status, **said)


def canceled(job_id, batch="b", **said):
    return completed(job_id, batch, "canceled", **said)


def removed(job_id, batch="b", **said):
    return event("job.removed", job_id, batch, **said)


def sealed(batch="b", **said):
    return event("batch.sealed", "", batch, **said)


def deleted(batch="b", **said):
    return event("batch.deleted", "", batch, **said)


def read(one: JobEvent) -> Reading:
    """What ingest makes of an event's words."""
    return Reading(PROFILE.find_status(one.status), PROFILE.find_error_code)


@dataclass(frozen=True)
class Told:
    """A finish as its message tells it: each member's (generation, status, batch_generation)."""

    key: int
    name: str
    incarnation_id: str
    generation: int
    message_id: str
    status: str
    runs: dict[str, tuple[int, str, int]]

    @property
    def new(self) -> set[str]:
        return {job_id for job_id, (_, _, since) in self.runs.items() if since == self.generation}


@dataclass
class Topic:
    """Everything that is kept between two polls, and what was told so far."""

    now: datetime = NOW
    jobs: dict[tuple[str, str], Job] = field(default_factory=dict)
    batches: dict[int, Batch] = field(default_factory=dict)
    leavers: dict[tuple[int, str], Leaver] = field(default_factory=dict)
    told: list[Told] = field(default_factory=list)
    ends: list[tuple[str, int, str, tuple[str, ...]]] = field(default_factory=list)  # job, generation, status, learned

    def poll(self, *events: JobEvent) -> list[Applied]:
        """One ingest transaction."""
        workspace = self._lock(events)
        applied = [workspace.apply(one, read(one)) for one in events]
        self._close(workspace)
        return applied

    def tell(self, *events: JobEvent) -> list[Applied]:
        """A transaction for each event."""
        return [self.poll(one)[0] for one in events]

    def wait(self, seconds: float = 60) -> None:
        """Let time pass, and then the settle loop do its work."""
        self.now += seconds * SECOND
        due = [b for b in self.batches.values() if b.settle_due_at is not None and b.settle_due_at <= self.now]
        workspace = Workspace()
        workspace.add_batches(replace(batch, changed=True) for batch in due)
        self._close(workspace)

    def batch(self, name: str = "b", seq: int = 0) -> Batch:
        """An incarnation of a name, the newest unless a number is given."""
        return sorted((b for b in self.batches.values() if b.name == name), key=lambda b: b.seq)[seq - 1]

    def job(self, job_id: str) -> Job:
        return self.jobs[TENANT, job_id]

    def members(self, batch: Batch) -> list[Member]:
        seen = (member_of(job) for job in self.jobs.values() if job.batch_key == batch.key)
        return [member for member in seen if member is not None]

    def living(self) -> dict[int, set[tuple[str, int, int]]]:
        """Who is in each batch that has not ended: job, generation, phase."""
        live = [batch for batch in self.batches.values() if not batch.ended]
        return {b.key: {(m.job_id, m.generation, m.phase) for m in self.members(b)} for b in live}

    def recounted(self, batch: Batch) -> Batch:
        """What the sweep makes of a batch (times are right only where they are not known to be stale)."""
        there = {job.job_id for job in self.jobs.values() if job.batch_key == batch.key and job.entered}
        left = {leaver.job_id for leaver in self.leavers.values() if leaver.batch_key == batch.key}
        again = recount(batch, self.members(batch), len(there | left))
        if batch.times_stale:
            times = {name: getattr(batch, name) for name in ("created_at", "started_at", "completed_at")}
            again = replace(again, times_stale=True, **times)
        return replace(again, changed=batch.changed)

    def facts(self) -> tuple[object, ...]:
        """All that is kept, to compare."""
        jobs = {key: replace(job, orders=list(job.orders)) for key, job in self.jobs.items()}
        batches = {key: replace(batch, times_stale=False) for key, batch in self.batches.items()}
        return jobs, batches, {key: replace(leaver) for key, leaver in self.leavers.items()}, list(self.told)

    # The store's part

    def _lock(self, events: Iterable[JobEvent]) -> Workspace:
        events = list(events)
        workspace = Workspace()
        known = [self.jobs[key] for key in {(e.tenant_id, e.job_id) for e in events} if key in self.jobs]
        workspace.jobs.update({(j.tenant_id, j.job_id): replace(j, orders=list(j.orders)) for j in known})
        keys = {job.batch_key for job in known} | {key for e in events for key in self._named(e)}
        workspace.add_batches(replace(self.batches[key]) for key in sorted(keys - {None}))
        names = {e.job_id for e in events}
        for where, leaver in self.leavers.items():
            if leaver.job_id in names and where[0] in keys and self.batches[where[0]].has_leavers:
                workspace.leavers[where] = replace(leaver)
        for one in events:
            if one.type is EventType.JOB_REMOVED:
                workspace.removals.update(self._removals(one))
        return workspace

    def _removals(self, one: JobEvent) -> Iterator[tuple[str, str, str, str]]:
        for (key, job_id), leaver in self.leavers.items():
            if job_id == one.job_id and self.batches[key].name == one.batch.name:
                yield from ((one.tenant_id, one.batch.name, job_id, event_id) for event_id in leaver.event_ids)

    def _named(self, one: JobEvent) -> Iterator[int]:
        ref = one.batch
        same = [b for b in self.batches.values() if ref is not None and b.name == ref.name]
        for batch in same:
            newest = batch.seq == max(b.seq for b in same)
            if newest or ref.id == batch.incarnation_id or one.event_id in (batch.ended_by, batch.sealed_by):
                yield batch.key

    def _close(self, workspace: Workspace) -> None:
        finishing = workspace.settle(self.now, SETTLING)
        self.ends += [
            (e.job.job_id, e.job.generation, e.job.phase.status, e.learned) for e in workspace.endings if not e.silent
        ]
        self._save(workspace)
        for batch in finishing:
            self._finish(batch)
        for batch in workspace.batches.values():
            if batch.changed:
                self.batches[batch.key] = replace(batch, grew=False, just_canceled=False, changed=False)

    def _save(self, workspace: Workspace) -> None:
        moved = {key: len(self.batches) - key for key in workspace.batches if key < 0}
        for key, new in moved.items():
            batch = workspace.batches.pop(key)
            batch.key = new
            workspace.batches[new] = batch
        for job in workspace.jobs.values():
            job.batch_key = moved.get(job.batch_key, job.batch_key)
        for leaver in workspace.leavers.values():
            leaver.batch_key = moved.get(leaver.batch_key, leaver.batch_key)
            if leaver.changed:
                self.leavers[leaver.batch_key, leaver.job_id] = replace(leaver, changed=False)
        for key, job in workspace.touched.items():
            self.jobs[key] = replace(job, orders=list(job.orders), stored=True)

    # The announcer's part

    def _finish(self, batch: Batch) -> None:
        message_id = batch_message_id(batch.tenant_id, batch.incarnation_id, batch.fingerprint)
        generation = finish(batch, message_id)
        for job in self.jobs.values():
            if job.batch_key == batch.key and job.member and job.batch_generation is None:
                job.batch_generation = generation
        counted = self.recounted(replace(batch, times_stale=False))
        batch.created_at, batch.started_at, batch.completed_at = (
            counted.created_at,
            counted.started_at,
            counted.completed_at,
        )
        batch.times_stale = False
        runs = {j.job_id: j for j in self.jobs.values() if j.batch_key == batch.key and j.member}
        told = {name: (j.generation, j.phase.status, j.batch_generation) for name, j in runs.items()}
        self.told.append(Told(batch.key, batch.name, batch.incarnation_id, generation, message_id, batch.status, told))
