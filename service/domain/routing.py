"""Which destinations get a message (chapter 1).

Belongs here: the choice among known webhooks. Does not belong here: looking them up, and what becomes of a delivery.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from service.domain.jobs import Job
from service.domain.profiles import Profile
from service.domain.webhooks import Filters, Scope, matches


@dataclass(frozen=True, slots=True)
class Subscriber:
    """An account webhook as routing sees it. ``held``: why its deliveries start held, or None."""

    webhook_key: int
    webhook_id: str
    lane: int
    filters: Filters
    held: str | None = None


@dataclass(frozen=True, slots=True)
class JobRoute:
    """Where a job message goes: a one-shot URL, a named webhook, one that does not exist, and subscribers."""

    one_shot_url: str | None = None
    missing_id: str | None = None
    webhooks: tuple[Subscriber, ...] = ()
    two_destinations: bool = False

    @property
    def wanted(self) -> bool:
        """True when some destination wants the message."""
        return bool(self.one_shot_url or self.missing_id or self.webhooks)


def route_job(
    job: Job, profile: Profile, subscribers: Mapping[str, Subscriber], *, batch_name: str | None, expired: bool
) -> JobRoute:
    """Choose the destinations of a run that has just ended.

    ``subscribers`` are the tenant's account webhooks by id; ``expired`` says that the producer's word was ``expired``.
    """
    named, missing = _named(job, subscribers)
    silent = not profile.emits(Scope.JOB) or (expired and not profile.notify_expired)
    chosen = {} if silent else {s.webhook_key: s for s in _matching(job, profile, subscribers.values(), batch_name)}
    if named is not None:
        chosen[named.webhook_key] = named
    return JobRoute(job.webhook_url, missing, tuple(chosen.values()), _two(job))


def route_learned(job: Job, learned: Iterable[str], subscribers: Mapping[str, Subscriber]) -> JobRoute:
    """Choose the destinations that became known after the run had ended: only the ones just named."""
    if "webhook_url" in learned:
        return JobRoute(job.webhook_url, two_destinations=_two(job))
    if job.webhook_url is not None:
        return JobRoute(two_destinations=True)
    named, missing = _named(job, subscribers)
    return JobRoute(None, missing, (named,) if named else ())


def route_batch(
    profile: Profile, batch_name: str, own: Subscriber | None, subscribers: Iterable[Subscriber]
) -> tuple[Subscriber, ...]:
    """Choose the destinations of a finish: the batch's own webhook, and the subscribers whose filters match."""
    chosen = {own.webhook_key: own} if own is not None else {}
    if profile.emits(Scope.BATCH):
        for subscriber in subscribers:
            if matches(subscriber.filters, profile.default_type, Scope.BATCH, batch_name):
                chosen[subscriber.webhook_key] = subscriber
    return tuple(chosen.values())


def _named(job: Job, subscribers: Mapping[str, Subscriber]) -> tuple[Subscriber | None, str | None]:
    """Return the webhook that the job names, or the id that no webhook has; neither if it has a one-shot URL."""
    webhook_id = job.webhook_id or job.inherited_webhook_id
    if job.webhook_url is not None or webhook_id is None:
        return None, None
    named = subscribers.get(webhook_id)
    return named, None if named else webhook_id


def _two(job: Job) -> bool:
    return job.webhook_url is not None and job.webhook_id is not None


def _matching(
    job: Job, profile: Profile, subscribers: Iterable[Subscriber], batch_name: str | None
) -> Iterable[Subscriber]:
    message_type = profile.find_message_type(Scope.JOB, job.kind)
    return (s for s in subscribers if matches(s.filters, message_type, Scope.JOB, batch_name))
