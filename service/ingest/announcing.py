"""From what has ended to messages and deliveries, inside the ingest transaction.

Belongs here: the order of calls that announces runs and finishes; ingest and the settle loop share it. Does not belong
here: who wants a message (``domain.routing``) and what it says (``domain.messages``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from service.domain.batches import Batch, finish
from service.domain.endings import EndedRun
from service.domain.identity import batch_message_id, job_group
from service.domain.jobs import Job
from service.domain.profiles import EXPIRED, Profile, ProfileSet
from service.domain.routing import JobRoute, Subscriber, route_batch, route_job, route_learned
from service.domain.workspace import Workspace
from service.ingest.bodies import build_batch_message, build_job_message
from service.ingest.spans import IngestSpans, MessageSpan
from service.ingest.transaction import FinishedDelivery, Handoff, IngestTransaction, Reservation, Retired, Tenancy
from service.ports import HandedOver, NewDelivery, NewMessage

NO_KEY = "no_signing_key"
SMALLEST_VIEW = 200  # bytes of a job in a body, at the least: bounds how many members a body can show


class Wanted(NamedTuple):
    """A message with its destinations."""

    message: NewMessage
    group_key: int
    fresh: bool
    webhooks: tuple[Subscriber, ...] = ()
    one_shot_url: str | None = None
    missing_id: str | None = None
    has_secret: bool = True


@dataclass(slots=True)
class Announcement:
    """What one transaction is to write, and what it did for the metrics."""

    wanted: list[Wanted] = field(default_factory=list)
    anomalies: Counter[str] = field(default_factory=Counter)
    messages: Counter[tuple[str, bool]] = field(default_factory=Counter)
    handed: list[HandedOver] = field(default_factory=list)
    finished: Counter[str] = field(default_factory=Counter)
    retired: list[Retired] = field(default_factory=list)
    spans: dict[str, MessageSpan] = field(default_factory=dict)
    finishes: int = 0
    queued: int = 0
    left: int = 0  # due deliveries that come back through a claim


class Announcer:
    """Announces what has ended. ``max_body`` is the cap of a batch body in bytes."""

    def __init__(self, profiles: ProfileSet, max_body: int, handoff: Handoff, spans: IngestSpans | None = None) -> None:
        self._profiles = profiles
        self._max_body = max_body
        self._handoff = handoff
        self._spans = spans

    async def announce(
        self,
        announcement: Announcement,
        transaction: IngestTransaction,
        workspace: Workspace,
        finishing: Sequence[Batch],
    ) -> None:
        """Number the finishes, store every message that is wanted, and queue its deliveries.

        Afterwards ``committed`` or ``rolled_back`` is to be called.
        """
        endings = [ending for ending in workspace.endings if not ending.silent]
        tenants = {e.job.tenant_id for e in endings} | {b.tenant_id for b in finishing}
        tenancies = await transaction.list_tenancies(tenants) if tenants else {}
        self._announce_jobs(announcement, workspace, endings, tenancies)
        self._trace(announcement)
        places = dict(await transaction.save(workspace, [w.message for w in announcement.wanted]))
        if finishing:
            places |= await self._announce_batches(announcement, transaction, finishing, tenancies)
        await transaction.save_batches(b for b in workspace.batches.values() if b.changed)
        announcement.retired += await transaction.retire(workspace.deletions)
        await self._write(announcement, transaction, places)
        announcement.finished.update(transaction.finished)

    # Jobs

    def _announce_jobs(
        self,
        announcement: Announcement,
        workspace: Workspace,
        endings: Sequence[EndedRun],
        tenancies: Mapping[str, Tenancy],
    ) -> None:
        for ending in endings:
            job, profile = ending.job, self._profiles.choose(ending.job.source)
            batch = workspace.batches.get(job.batch_key or 0)
            batch = None if batch is None or batch.ended else batch
            tenancy = tenancies[job.tenant_id]
            route = _route(ending, profile, tenancy, batch)
            announcement.anomalies["two_destinations"] += route.two_destinations
            if route.wanted:
                message = build_job_message(job, profile, batch, ending.trace)
                announcement.wanted.append(_want(message, job, route, tenancy))
                announcement.messages["job", job.generation > 1] += not job.message_made
                job.message_made = True

    # Batches

    async def _announce_batches(
        self,
        announcement: Announcement,
        transaction: IngestTransaction,
        finishing: Sequence[Batch],
        tenancies: Mapping[str, Tenancy],
    ) -> Mapping[str, datetime]:
        own = await transaction.list_batch_webhooks([b.key for b in finishing])
        first = len(announcement.wanted)
        for batch in finishing:
            profile, loud = self._profiles.choose(batch.source), batch.loud
            message = await self._finish(transaction, batch, profile)
            subscribers = tenancies[batch.tenant_id].subscribers.values()
            webhooks = route_batch(profile, batch.name, own.get(batch.key), subscribers) if loud else ()
            announcement.wanted.append(Wanted(message, batch.key, batch.finish == 1, webhooks))
            announcement.messages["batch", batch.finish > 1] += 1
        announcement.finishes = len(finishing)
        self._trace(announcement, first)
        return await transaction.insert_messages([w.message for w in announcement.wanted[first:]])

    async def _finish(self, transaction: IngestTransaction, batch: Batch, profile: Profile) -> NewMessage:
        trace = batch.trace
        finish(batch, batch_message_id(batch.tenant_id, batch.incarnation_id, batch.fingerprint))
        await transaction.close_finish(batch)
        if batch.times_stale:
            await transaction.measure_times(batch)
        members = await transaction.list_members(batch, self._max_body // SMALLEST_VIEW + 1)
        return build_batch_message(batch, members, profile, self._max_body, trace)

    # Writing

    async def _write(
        self, announcement: Announcement, transaction: IngestTransaction, places: Mapping[str, datetime]
    ) -> None:
        """Queue the deliveries of what is wanted; ``places`` is where each message's body is."""
        if not announcement.wanted:
            return
        for message_id in announcement.spans.keys() - {m for m, at in places.items() if at == transaction.now}:
            del announcement.spans[message_id]  # it was made before
        urls = [(w.message.tenant_id, w.one_shot_url) for w in announcement.wanted if w.one_shot_url is not None]
        one_shots = await transaction.list_one_shots(urls)
        made = await self._unsent(transaction, _deliveries(announcement.wanted, places, one_shots), places)
        finished, deliveries = _overtaken(made)
        finished += [_missing(w, places) for w in announcement.wanted if w.missing_id is not None]
        await self._queue(announcement, transaction, deliveries)
        await transaction.insert_finished(finished)

    def _trace(self, announcement: Announcement, first: int = 0) -> None:
        """Begin a span for each message that is wanted, from the ``first`` on."""
        if self._spans is None:
            return
        for position, wanted in enumerate(announcement.wanted[first:], first):
            span = announcement.spans[wanted.message.message_id] = self._spans.create(wanted.message)
            announcement.wanted[position] = wanted._replace(message=wanted.message._replace(trace=span.trace))

    async def _queue(
        self, announcement: Announcement, transaction: IngestTransaction, deliveries: Sequence[NewDelivery]
    ) -> None:
        """Queue deliveries; those for which this process has room are inserted leased to it, and sent from memory.

        Not those of a message that was stored before: its body is the one stored then, not the one in memory.
        """
        reserve, now = self._handoff.reserve, transaction.now
        reserved = {
            (d.message_id, d.webhook_key): (d, reserve(d) if d.held is None and d.body_at == now else None)
            for d in deliveries
        }
        try:
            queued = await transaction.enqueue(
                [d if lease is None else _leased(d, lease) for d, lease in reserved.values()]
            )
        except BaseException:
            self._cancel(lease for _, lease in reserved.values())
            raise
        messages = {w.message.message_id: w.message for w in announcement.wanted}
        for row in queued:
            key = (row.message_id, row.webhook_key)
            delivery, lease = reserved[key]
            if row.due and lease is not None:
                message = messages[row.message_id]
                handed = HandedOver(delivery, row.delivery_id, message.body, now, lease, message.trace)
                announcement.handed.append(handed)
                del reserved[key]
        announcement.queued = len(queued)
        announcement.left = sum(row.due for row in queued) - len(announcement.handed)
        self._cancel(lease for _, lease in reserved.values())

    def _cancel(self, reservations: Iterable[Reservation | None]) -> None:
        for reservation in reservations:
            if reservation is not None:
                self._handoff.cancel(reservation)

    def committed(self, announcement: Announcement) -> None:
        """Send what was queued for this process; call it after the commit."""
        for span in announcement.spans.values():
            span.end()
        for handed in announcement.handed:
            self._handoff.push(handed)
        if announcement.left:
            self._handoff.wake()

    def rolled_back(self, announcement: Announcement) -> None:
        """Give the room back that was reserved in a transaction that did not commit."""
        self._cancel(handed.lease for handed in announcement.handed)

    async def _unsent(
        self, transaction: IngestTransaction, made: list[tuple[NewDelivery, str]], places: Mapping[str, datetime]
    ) -> list[tuple[NewDelivery, str]]:
        """Leave out webhooks that have a finished delivery of the message already, if it was stored before."""
        known = [message_id for message_id, body_at in places.items() if body_at != transaction.now]
        sent = await transaction.list_finished(known) if known else frozenset()
        return [(d, webhook_id) for d, webhook_id in made if (d.message_id, d.webhook_key) not in sent]


def _leased(delivery: NewDelivery, lease: Reservation) -> NewDelivery:
    """The same with a lease: its last two fields (``_replace`` would take three times as long)."""
    return NewDelivery._make((*delivery[:-2], lease.token, lease.until))


def _route(ending: EndedRun, profile: Profile, tenancy: Tenancy, batch: Batch | None) -> JobRoute:
    if ending.learned:
        return route_learned(ending.job, ending.learned, tenancy.subscribers)
    return route_job(
        ending.job,
        profile,
        tenancy.subscribers,
        batch_name=batch.name if batch else None,
        expired=ending.job.source_status == EXPIRED,
    )


def _want(message: NewMessage, job: Job, route: JobRoute, tenancy: Tenancy) -> Wanted:
    return Wanted(
        message,
        job_group(job.tenant_id, job.job_id),
        not job.stored,
        route.webhooks,
        route.one_shot_url,
        route.missing_id,
        tenancy.has_secret,
    )


def _deliveries(
    wanted: Sequence[Wanted],
    places: Mapping[str, datetime],
    one_shots: Mapping[tuple[str, str], Subscriber],
) -> list[tuple[NewDelivery, str]]:
    made = []
    for one in wanted:
        webhooks = [(webhook, webhook.held) for webhook in one.webhooks]
        if one.one_shot_url is not None:
            hidden = one_shots[one.message.tenant_id, one.one_shot_url]
            webhooks.append((hidden, hidden.held or (None if one.has_secret else NO_KEY)))
        made += [(_delivery(one, webhook, held, places), webhook.webhook_id) for webhook, held in webhooks]
    return made


def _delivery(one: Wanted, webhook: Subscriber | None, held: str | None, places: Mapping[str, datetime]) -> NewDelivery:
    message = one.message
    return NewDelivery(
        message.tenant_id,
        webhook.webhook_key if webhook else 0,
        webhook.lane if webhook else 0,
        message.message_id,
        places[message.message_id],
        message.type,
        message.scope,
        one.group_key,
        message.batch_key,
        message.job_id,
        message.generation,
        held,
        fresh=one.fresh,
    )


def _missing(one: Wanted, places: Mapping[str, datetime]) -> FinishedDelivery:
    return FinishedDelivery(_delivery(one, None, None, places), one.missing_id or "", "failed", "destination_missing")


def _overtaken(made: list[tuple[NewDelivery, str]]) -> tuple[list[FinishedDelivery], list[NewDelivery]]:
    """Split off runs that a later run of the same job overtook within this very transaction."""
    newest: dict[tuple[int | None, int], int] = {}
    for delivery, _ in made:
        place = (delivery.group_key, delivery.webhook_key)
        newest[place] = max(newest.get(place, 0), delivery.generation)
    current, finished = [], []
    for delivery, webhook_id in made:
        if delivery.generation == newest[delivery.group_key, delivery.webhook_key]:
            current.append(delivery)
        else:
            finished.append(FinishedDelivery(delivery, webhook_id, "superseded"))
    return finished, current
