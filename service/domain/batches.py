"""The batch aggregate: members, ``all_done``, generations, status, times, settling (chapter 1, "Batch rules").

Belongs here: everything that one incarnation decides by itself, on counters, so that an event's cost does not grow with
the batch. Does not belong here: which incarnation a reference means (``incarnations``), what a job's run is (``jobs``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from hashlib import blake2b

from service.domain.jobs import Job, Phase

FINGERPRINT_BYTES = 16
_MODULUS = 1 << (8 * FINGERPRINT_BYTES)


@dataclass(frozen=True, slots=True)
class Member:
    """What a batch sees of one member: its current run."""

    job_id: str
    generation: int
    phase: Phase
    dirty: bool
    created_at: datetime | None
    started_at: datetime | None
    completed_at: datetime | None

    @property
    def weight(self) -> int:
        """This run's part of the fingerprint, which does not depend on the order of members."""
        content = f"{len(self.job_id)}:{self.job_id}:{self.generation}:{self.phase.status}"
        digest = blake2b(content.encode(), digest_size=FINGERPRINT_BYTES).digest()
        return int.from_bytes(digest, "big")


NOBODY = Member("", 0, Phase.STORED, dirty=False, created_at=None, started_at=None, completed_at=None)


def member_of(job: Job) -> Member | None:
    """Return what the job's batch sees of it, or None when it is no member."""
    if not job.member:
        return None
    return Member(
        job.job_id,
        job.generation,
        job.phase,
        job.batch_generation is None,
        job.created_at,
        job.started_at,
        job.finished_at if job.phase.terminal else None,
    )


@dataclass(slots=True)
class Batch:
    """One incarnation of a batch name.

    ``key`` is its row key, negative while it is not stored yet. ``entered`` counts the distinct jobs that are or ever
    were members, or were removed; ``started`` members that started or finished; ``dirty`` members whose run has appeared
    in no finish yet, and ``dirty_canceled`` the canceled ones among them. ``fingerprint`` is the sum of the members'
    weights. ``times_stale``: an extreme of the members' times may have changed, and has to be computed from all of them.
    ``has_leavers``: some job left it or was removed. ``finish`` numbers the newest finish. ``loud``: some event since
    then is recent enough to notify about. ``trace`` is the context of the event that last changed a member; the next
    finish continues it. ``grew``, ``just_canceled`` and ``changed`` are about the running transaction only.
    """

    key: int
    tenant_id: str
    name: str
    seq: int
    incarnation_id: str
    adopted: bool = False
    source: str | None = None
    ended_at: datetime | None = None
    ended_by: str | None = None
    sealed: bool = False
    sealed_by: str | None = None
    declared_total: int | None = None
    declared_version: int = -1
    entered: int = 0
    members: int = 0
    started: int = 0
    succeeded: int = 0
    failed: int = 0
    canceled: int = 0
    dirty: int = 0
    dirty_canceled: int = 0
    fingerprint: int = 0
    created_at: datetime | None = None
    started_at: datetime | None = None
    completed_at: datetime | None = None
    times_stale: bool = False
    has_leavers: bool = False
    finish: int = 0
    finish_message_id: str | None = None
    settle_seconds: int | None = None
    settle_due_at: datetime | None = None
    loud: bool = False
    trace: str | None = None
    grew: bool = False
    just_canceled: bool = False
    changed: bool = False

    @property
    def ended(self) -> bool:
        """True once the incarnation was deleted."""
        return self.ended_at is not None or self.ended_by is not None

    @property
    def finished(self) -> int:
        """The number of members whose run has ended."""
        return self.succeeded + self.failed + self.canceled

    @property
    def all_done(self) -> bool:
        """At least one member, every member terminal, the declared total reached."""
        if not self.members or self.finished < self.members:
            return False
        return self.declared_total is None or self.entered >= self.declared_total

    @property
    def generation(self) -> int:
        """The last finish, plus one while a run waits for its first finish or there was none."""
        return self.finish + 1 if self.dirty or not self.finish else self.finish

    @property
    def status(self) -> str:
        """One of the five public words."""
        if not self.all_done:
            return "processing" if self.started else "queued"
        if self.canceled == self.members:
            return "canceled"
        return "failed" if self.failed and not self.succeeded else "succeeded"


def exchange(batch: Batch, old: Member | None, new: Member | None) -> None:
    """Replace what the batch counts of one job: ``old`` is taken off, ``new`` is added; either may be None."""
    if old == new:
        return
    batch.changed = True
    canceled_before = batch.dirty_canceled
    if old is not None:
        _count(batch, old, -1)
    if new is not None:
        _count(batch, new, 1)
    _move_times(batch, old, new)
    if batch.dirty_canceled > canceled_before:
        batch.just_canceled = True
    if old is None:
        batch.grew = True
        batch.sealed = False


def _count(batch: Batch, member: Member, by: int) -> None:
    phase = member.phase
    batch.members += by
    batch.started += by * (phase >= Phase.PROCESSING or member.started_at is not None)
    batch.succeeded += by * (phase is Phase.SUCCEEDED)
    batch.failed += by * (phase is Phase.FAILED)
    batch.canceled += by * (phase is Phase.CANCELED)
    batch.dirty += by * member.dirty
    batch.dirty_canceled += by * (member.dirty and phase is Phase.CANCELED)
    batch.fingerprint = (batch.fingerprint + by * member.weight) % _MODULUS


def _move_times(batch: Batch, old: Member | None, new: Member | None) -> None:
    gone, come = old or NOBODY, new or NOBODY
    batch.created_at = _extreme(batch, batch.created_at, gone.created_at, come.created_at, latest=False)
    batch.started_at = _extreme(batch, batch.started_at, gone.started_at, come.started_at, latest=False)
    batch.completed_at = _extreme(batch, batch.completed_at, gone.completed_at, come.completed_at, latest=True)


def _extreme(
    batch: Batch, known: datetime | None, old: datetime | None, new: datetime | None, *, latest: bool
) -> datetime | None:
    """Keep an extreme up to date without looking at the other members; mark it stale where that cannot be done."""
    if old is not None and old == known and old != new:
        batch.times_stale = True
    if known is None or new is None:
        return known or new
    return max(known, new) if latest else min(known, new)


def enter(batch: Batch, job: Job) -> None:
    """Count the job in ``entered``, if it was not counted before."""
    if not job.entered:
        job.entered = True
        batch.entered += 1
        batch.changed = True


def declare_total(batch: Batch, total: int | None, version: int) -> None:
    """Take the declared number of jobs ever added: the higher version wins, equal versions take the larger total."""
    if total is None or version < batch.declared_version:
        return
    if version == batch.declared_version and total <= (batch.declared_total or 0):
        return
    batch.declared_total, batch.declared_version = total, version
    batch.changed = True


def seal(batch: Batch, event_id: str) -> None:
    """Mark that no more jobs are to come."""
    batch.sealed, batch.sealed_by, batch.changed = True, event_id, True


def end(batch: Batch, event_id: str, at: datetime) -> None:
    """End the incarnation: no finish comes any more."""
    batch.ended_by, batch.ended_at = event_id, at
    batch.settle_due_at = None
    batch.changed = True


@dataclass(frozen=True, slots=True)
class Settling:
    """How long a batch must stay ``all_done`` before it finishes: by default, and after a cancellation."""

    default: timedelta
    cancel_grace: timedelta


def settle_window(batch: Batch, settling: Settling) -> timedelta:
    """How long the batch must stay ``all_done``: its own figure, 0 with a declared total or a seal, else the default."""
    if batch.sealed:
        window = timedelta(0)
    elif batch.settle_seconds is not None:
        window = timedelta(seconds=batch.settle_seconds)
    else:
        window = settling.default if batch.declared_total is None else timedelta(0)
    return max(window, settling.cancel_grace) if batch.dirty_canceled else window


def find_due(batch: Batch, seconds: int | None, now: datetime, settling: Settling) -> datetime | None:
    """When a batch that waits is due once its registration asks for this window, or for none: a shorter one counts."""
    if batch.settle_due_at is None:
        return None
    return min(batch.settle_due_at, now + settle_window(replace(batch, settle_seconds=seconds), settling))


def settle(batch: Batch, now: datetime, settling: Settling) -> bool:
    """Decide at the end of a transaction whether the batch finishes now; else set or clear the due time."""
    if batch.ended or not batch.all_done or not batch.dirty:
        _set_due(batch, None)
        return False
    due = now + settle_window(batch, settling)
    if batch.settle_due_at is not None and not batch.grew:
        due = min(due, batch.settle_due_at)
    if batch.just_canceled:
        due = max(due, now + settling.cancel_grace)
    _set_due(batch, due if due > now else None)
    return due <= now


def _set_due(batch: Batch, due: datetime | None) -> None:
    if batch.settle_due_at != due:
        batch.settle_due_at = due
        batch.changed = True


def finish(batch: Batch, message_id: str) -> int:
    """Number the finish and clear what made the batch dirty. Returns the finish's generation."""
    batch.finish += 1
    batch.finish_message_id = message_id
    batch.dirty = batch.dirty_canceled = 0
    batch.settle_due_at = None
    batch.loud, batch.trace = False, None
    batch.changed = True
    return batch.finish


def recount(batch: Batch, members: list[Member], entered: int) -> Batch:
    """Return the batch with its counters, fingerprint and times made anew from all its members."""
    fresh = replace(
        batch,
        entered=entered,
        members=0,
        started=0,
        succeeded=0,
        failed=0,
        canceled=0,
        dirty=0,
        dirty_canceled=0,
        fingerprint=0,
        created_at=None,
        started_at=None,
        completed_at=None,
    )
    for member in members:
        exchange(fresh, None, member)
    fresh.grew, fresh.just_canceled, fresh.sealed = batch.grew, batch.just_canceled, batch.sealed
    fresh.times_stale = False
    return fresh
