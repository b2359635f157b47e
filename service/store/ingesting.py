"""The ingest transaction: locks, aggregates in, aggregates out (chapter 1, "Locking").

Belongs here: what only ingest and settling need of the store. Does not belong here: what an event means
(``domain.workspace``) and who is told (``ingest.announcing``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType

from service.domain.batches import Batch
from service.domain.events import EventType, JobEvent
from service.domain.jobs import Job, detach
from service.domain.routing import Subscriber
from service.domain.workspace import JobKey, Leaver, Workspace
from service.ingest.poll import Partition, Record
from service.ingest.transaction import FinishedDelivery, Predecessor, Retired, Tenancy
from service.ports import Conflict, NewDelivery, NewMessage, QueuedDelivery
from service.store import queueing
from service.store.batch_rows import (
    INSERT_COLUMNS,
    UPDATE_COLUMNS,
    changed_batch_row,
    decode_batch,
    decode_event_ids,
    encode_event_ids,
    new_batch_row,
)
from service.store.codes import DoneState, Scope
from service.store.database import Database, Session
from service.store.dead_letters import insert_dead_letters
from service.store.job_rows import decode_job, inherited_webhook_id
from service.store.moving import move_registration
from service.store.opening import Opening, open_ingest
from service.store.routing import OneShots, RoutingCopy, batch_subscriber
from service.store.statements import columns
from service.store.work import insert_messages, save_work

NO_POSITIONS: Mapping[Partition, int] = MappingProxyType({})


@dataclass(slots=True)
class PostgresIngestTransaction:
    """Implements ``ingest.transaction.IngestTransaction`` on one session."""

    session: Session
    routing: RoutingCopy
    one_shots: OneShots
    opening: Opening
    finished: Counter[str] = field(default_factory=Counter)

    @property
    def now(self) -> datetime:
        """The database's instant of the transaction's start."""
        return self.opening.now

    @property
    def owned(self) -> frozenset[Partition]:
        """The partitions whose offsets this transaction stores."""
        return self.opening.owned

    async def bury(self, records: Sequence[Record]) -> None:
        """Store dead letters."""
        if records:
            await insert_dead_letters(self.session, records)

    async def lock(self, events: Sequence[JobEvent]) -> Workspace:
        """Lock and load every aggregate that the events may concern: batches in key order, then jobs."""
        workspace = Workspace()
        keys, known = _job_keys(events), self.opening.batches
        named = [known[key] for key in keys if key in known]
        await self._lock_batches(workspace, events, {batch_key for batch_key in named if batch_key is not None})
        if named:
            await self._lock_jobs(workspace, [key for key in keys if key in known])
        await self._load_leavers(workspace, sorted({job_id for _, job_id in keys}))
        await self._load_removals(workspace, [event for event in events if event.type is EventType.JOB_REMOVED])
        return workspace

    async def _lock_batches(self, workspace: Workspace, events: Sequence[JobEvent], keys: set[int]) -> None:
        named = {
            (e.tenant_id, e.batch.name, e.batch.id, None if e.job_id else e.event_id)
            for e in events
            if e.batch is not None
        }
        if named or keys:
            rows = await self.session.fetch("batches_lock", *columns(named, 4), sorted(keys))
            workspace.add_batches(decode_batch(row) for row in rows)

    async def _lock_jobs(self, workspace: Workspace, keys: list[tuple[str, str]]) -> None:
        for row in await self.session.fetch("jobs_lock", *columns(keys, 2)):
            job = decode_job(row)
            if job.batch_key is not None and job.batch_key not in workspace.batches:
                if self.opening.batches.get((job.tenant_id, job.job_id)) != job.batch_key:
                    msg = "a job changed its batch before its row was locked"
                    raise Conflict(msg)
                detach(job)  # the batch was forgotten, and the job is about to be
            workspace.jobs[job.tenant_id, job.job_id] = job

    async def _load_leavers(self, workspace: Workspace, job_ids: list[str]) -> None:
        keys = [batch.key for batch in workspace.batches.values() if batch.has_leavers]
        if not keys:
            return
        for row in await self.session.fetch("leavers_list", keys, job_ids):
            event_ids = decode_event_ids(row["event_ids"])
            leaver = Leaver(row["batch_key"], row["job_id"], row["removed_generation"], event_ids)
            workspace.leavers[leaver.batch_key, leaver.job_id] = leaver

    async def _load_removals(self, workspace: Workspace, events: Sequence[JobEvent]) -> None:
        asked = {(e.tenant_id, e.batch.name, e.job_id) for e in events if e.batch is not None}
        for row in await self.session.fetch("leavers_repeated", *columns(asked, 3)) if asked else []:
            place = (row["tenant_id"], row["name"], row["job_id"])
            workspace.removals.update((*place, event_id) for event_id in decode_event_ids(row["event_ids"]))

    async def lock_settling(self, batch_keys: Sequence[int]) -> Workspace:
        """Lock incarnations whose settle window may be over; each counts as changed."""
        workspace = Workspace()
        workspace.add_batches(decode_batch(row) for row in await self.session.fetch("batches_lock_keys", batch_keys))
        for batch in workspace.batches.values():
            batch.changed = True
        return workspace

    async def find_predecessors(self, jobs: Sequence[tuple[Job, bool]]) -> Mapping[tuple[str, str], Predecessor]:
        """Return the stored job before each one, by (tenant, job); the flag allows "same subject"."""
        asked = [(j.tenant_id, j.job_id, j.previous_job_id, j.subject_id if subject else None) for j, subject in jobs]
        rows = await self.session.fetch("jobs_find_predecessors", *columns(asked, 4))
        return {
            (row["tenant_id"], row["job_id"]): Predecessor(row["before_id"], inherited_webhook_id(row["doc"]))
            for row in rows
        }

    async def save(self, workspace: Workspace, messages: Sequence[NewMessage]) -> Mapping[str, datetime]:
        """Write leavers, new batches (which get their keys), all touched jobs and messages of theirs.

        Returns for each message where its body is.
        """
        await self._insert_batches(workspace)
        leavers = [x for x in workspace.leavers.values() if x.changed]
        if leavers:
            rows = [(x.batch_key, x.job_id, x.removed_generation, encode_event_ids(x.event_ids)) for x in leavers]
            await self.session.execute("leavers_upsert", *columns(rows, 4))
        stored = await save_work(self.session, workspace.touched.values(), messages, self.now)
        return await self._find_places(messages, stored)

    async def _insert_batches(self, workspace: Workspace) -> None:
        new = [batch for batch in workspace.batches.values() if batch.key < 0]
        if not new:
            return
        keys = await self._insert_batch_rows(new)
        moved = {batch.key: keys[batch.tenant_id, batch.name, batch.seq] for batch in new}
        for job in workspace.jobs.values():
            job.batch_key = moved.get(job.batch_key or 0, job.batch_key)
        for leaver in workspace.leavers.values():
            leaver.batch_key = moved.get(leaver.batch_key, leaver.batch_key)
        for batch in new:
            del workspace.batches[batch.key]
            batch.key = moved[batch.key]
            workspace.batches[batch.key] = batch

    async def _insert_batch_rows(self, batches: list[Batch]) -> Mapping[tuple[str, str, int], int]:
        ordered = sorted(batches, key=lambda b: (b.tenant_id, b.name, b.seq))
        rows = await self.session.fetch("batches_insert", *columns(map(new_batch_row, ordered), INSERT_COLUMNS))
        if len(rows) < len(batches):
            msg = "another transaction opened the same incarnation"
            raise Conflict(msg)
        return {(row["tenant_id"], row["name"], row["seq"]): row["batch_key"] for row in rows}

    async def save_batches(self, batches: Iterable[Batch]) -> None:
        """Write batches that are stored already."""
        rows = [changed_batch_row(batch) for batch in batches]
        if rows:
            await self.session.execute("batches_update", *columns(rows, UPDATE_COLUMNS))

    async def close_finish(self, batch: Batch) -> None:
        """Number the runs that the batch's newest finish is the first to show."""
        await self.session.execute("jobs_close_finish", batch.key, batch.finish)

    async def measure_times(self, batch: Batch) -> None:
        """Compute the extremes of the members' times anew."""
        row = await self.session.find("batches_measure_times", batch.key)
        assert row is not None
        batch.created_at, batch.started_at, batch.completed_at = row
        batch.times_stale = False

    async def list_members(self, batch: Batch, limit: int) -> list[Job]:
        """Return members, newest finish first."""
        return [decode_job(row) for row in await self.session.fetch("jobs_list_members", batch.key, limit)]

    async def list_tenancies(self, tenant_ids: Iterable[str]) -> Mapping[str, Tenancy]:
        """Return what routing knows of each tenant."""
        wanted, known = set(tenant_ids), self.opening.versions
        if wanted <= known.keys():
            return await self.routing.bring_up_to(self.session, [known[tenant_id] for tenant_id in wanted])
        return await self.routing.list_tenancies(self.session, sorted(wanted))

    async def list_batch_webhooks(self, batch_keys: Sequence[int]) -> Mapping[int, Subscriber]:
        """Return the own webhooks of batches that have one."""
        rows = await self.session.fetch("webhooks_of_batches", batch_keys) if batch_keys else []
        return {row["batch_key"]: batch_subscriber(row) for row in rows}

    async def list_one_shots(self, urls: Sequence[tuple[str, str]]) -> Mapping[tuple[str, str], Subscriber]:
        """Return the hidden webhook of each (tenant, URL), made where there is none."""
        return await self.one_shots.list_or_make(self.session, sorted(set(urls))) if urls else {}

    async def retire(self, deletions: Sequence[tuple[Batch, datetime]]) -> list[Retired]:
        """Cancel what is left of deleted batches and retire their registrations; return what became of each batch.

        A registration that was written after its batch's deletion happened moves to the next incarnation, unless that
        has one.
        """
        ended = {batch.key: batch for batch, _ in deletions}
        rows = [(batch.key, at) for batch, at in deletions]
        retired: list[Retired] = []
        for row in await self.session.fetch("batches_retire", *columns(rows, 2)) if rows else []:
            batch = ended[row["batch_key"]]
            self.finished["canceled"] += row["canceled"]
            if row["webhook_key"] is not None:
                await move_registration(self.session, batch, row["webhook_key"])
            else:
                retired.append(Retired(batch, row["webhook_id"], row["canceled"]))
        return retired

    async def insert_messages(self, messages: Sequence[NewMessage]) -> Mapping[str, datetime]:
        """Store messages; return for each id where its body is."""
        return await self._find_places(messages, await insert_messages(self.session, messages, self.now))

    async def _find_places(self, messages: Sequence[NewMessage], stored: set[str]) -> Mapping[str, datetime]:
        places = dict.fromkeys(stored, self.now)
        known = {m.message_id for m in messages if m.message_id not in stored}
        if known:
            rows = await self.session.fetch("messages_hold", sorted(known))
            places.update((row["message_id"], row["body_at"]) for row in rows)
            if len(rows) < len(known):
                msg = "a message was forgotten before it was put to use again"
                raise Conflict(msg)
        return places

    async def list_finished(self, message_ids: Sequence[str]) -> frozenset[tuple[str, int]]:
        """Return the (message, webhook key) pairs whose delivery is finished already.

        What is queued of these messages stays so until the transaction ends: else one that is recorded meanwhile would be
        found neither here nor there, and be queued again.
        """
        await self.session.execute("deliveries_keep", message_ids)
        rows = await self.session.fetch("deliveries_list_finished", message_ids)
        return frozenset((row["message_id"], row["webhook_key"]) for row in rows)

    async def enqueue(self, deliveries: Sequence[NewDelivery]) -> list[QueuedDelivery]:
        """Queue deliveries (see ``service.store.queueing``)."""
        return await queueing.enqueue(self.session, deliveries, wake=False, on_superseded=self._count_superseded)

    def _count_superseded(self, count: int) -> None:
        self.finished["superseded"] += count

    async def insert_finished(self, deliveries: Sequence[FinishedDelivery]) -> None:
        """Store deliveries that are finished as they are made."""
        self.finished.update(d.state for d in deliveries)
        if deliveries:
            await self.session.execute("deliveries_insert_done", *columns(map(_finished_row, deliveries), 13))


def _job_keys(events: Sequence[JobEvent]) -> list[JobKey]:
    return sorted({(event.tenant_id, event.job_id) for event in events if event.job_id})


def _finished_row(finished: FinishedDelivery) -> tuple[object, ...]:
    d = finished.delivery
    return (
        d.tenant_id,
        d.webhook_key or None,
        finished.webhook_id,
        d.message_id,
        d.body_at,
        d.type,
        int(Scope[d.scope.upper()]),
        d.group_key,
        d.batch_key,
        d.job_id,
        d.generation,
        int(DoneState[finished.state.upper()]),
        finished.reason,
    )


class PostgresIngestStore:
    """Implements ``ingest.transaction.IngestStore``."""

    def __init__(self, database: Database, routing: RoutingCopy, one_shots: OneShots) -> None:
        self._database = database
        self._routing = routing
        self._one_shots = one_shots

    @asynccontextmanager
    async def transaction(
        self, events: Sequence[JobEvent] = (), owner: str = "", positions: Mapping[Partition, int] = NO_POSITIONS
    ) -> AsyncIterator[PostgresIngestTransaction]:
        """Open one; it commits on a clean exit."""
        tenant_ids = sorted({event.tenant_id for event in events})
        async with self._database.transaction() as session:
            opening = await open_ingest(session, owner, positions, _job_keys(events), tenant_ids)
            yield PostgresIngestTransaction(session, self._routing, self._one_shots, opening)
