"""Runs that have ended: what one transaction has to announce of jobs.

Belongs here: that each run is announced once, with all that the transaction teaches, and anew when it is learned later
who should hear of it. Does not belong here: what an event does to a run (``jobs``) and to its batch (``workspace``), and
who gets the message (``routing``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from service.domain.batches import Batch
    from service.domain.events import JobEvent
    from service.domain.jobs import Job, Merged


class EndedRun(NamedTuple):
    """A run that ended, or had ended when a destination, or the job that it inherits one from, was named (``learned``).

    A run that nobody wanted to hear of ends anew when it is learned what kind of job it was, or in which batch.
    """

    job: Job
    learned: tuple[str, ...] = ()
    silent: bool = False
    trace: str | None = None


class Filed(NamedTuple):
    """What is known of a run that has ended and decides, beside its destinations, who hears of it."""

    kind: str | None
    batch_name: str | None
    subject_id: str | None
    previous_job_id: str | None


def find_filed(job: Job, batch: Batch | None) -> Filed | None:
    """What is known of a run now, in its live batch, if any; None while it has not ended."""
    if not job.phase.terminal:
        return None
    return Filed(job.kind, batch.name if batch else None, job.subject_id, job.previous_job_id)


class Endings:
    """The runs to be announced, in the order in which they ended."""

    def __init__(self) -> None:
        self._runs: list[EndedRun] = []

    def __iter__(self) -> Iterator[EndedRun]:
        return iter(self._runs)

    def set_aside(self, job: Job) -> None:
        """Keep a run that ended in this transaction, for its announcement, before a later run takes its place."""
        if any(run.job is job for run in self._runs):
            was = replace(job, orders=list(job.orders))
            self._runs = [run._replace(job=was) if run.job is job else run for run in self._runs]

    def note(self, job: Job, event: JobEvent, merged: Merged, before: Filed | None, after: Filed | None) -> None:
        """Note what an event means for the run's announcement; ``before`` and ``after`` it, this was known of the run."""
        if merged.ended or (after is not None and after != before and not job.message_made):
            self._add(job, (), event)
        elif learned := merged.learned or _list_learned(job, before, after):
            self._add(job, learned, event)

    def _add(self, job: Job, learned: tuple[str, ...], event: JobEvent) -> None:
        known = next((run for run in self._runs if run.job is job and not run.silent), None)
        if known is None:
            self._runs.append(EndedRun(job, learned, event.silent, event.trace))
        elif known.learned:
            both = known._replace(learned=known.learned + learned if learned else ())
            self._runs = [both if run is known else run for run in self._runs]


def _list_learned(job: Job, before: Filed | None, after: Filed | None) -> tuple[str, ...]:
    """Which of the names that lead to an earlier job, and its destination, a run has got that had ended without any."""
    if before is None or after is None or job.webhook_id or job.inherited_webhook_id or job.webhook_url:
        return ()
    return tuple(n for n in ("subject_id", "previous_job_id") if getattr(before, n) != getattr(after, n))
