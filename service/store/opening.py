"""The first statement of the ingest transaction: the fence, and all that can be asked before anything is locked.

Belongs here: that statement's values. Does not belong here: the rest of the transaction (``ingesting``), and the rows of
``kafka_offsets`` outside it (``offsets``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from service.domain.workspace import JobKey
from service.ingest.poll import Partition
from service.store.database import Session
from service.store.routing import Version
from service.store.statements import columns


@dataclass(frozen=True, slots=True)
class Opening:
    """What a transaction knows from its start: its instant, the partitions whose offsets it has stored, the batch of
    each known job (None: in none), and the version of routing by tenant.
    """

    now: datetime
    owned: frozenset[Partition]
    batches: Mapping[JobKey, int | None]
    versions: Mapping[str, Version]


async def open_ingest(
    session: Session,
    owner: str,
    positions: Mapping[Partition, int],
    jobs: Collection[JobKey] = (),
    tenant_ids: Collection[str] = (),
) -> Opening:
    """Store the offsets of those partitions that ``owner`` still owns, and look up jobs and tenants.

    To be the transaction's first statement: it locks the rows, so that a new owner reads what this one commits.
    """
    topics, numbers = [p.topic for p in positions], [p.number for p in positions]
    given = (owner, topics, numbers, list(positions.values()), *columns(jobs, 2), tenant_ids)
    row = await session.find("ingest_open", *given)
    assert row is not None
    now, topics, numbers, tenants, job_ids, batches, routed, versions, secrets = row
    return Opening(
        now,
        frozenset(map(Partition, topics or (), numbers or ())),
        dict(zip(zip(tenants or (), job_ids or (), strict=True), batches or (), strict=True)),
        dict(zip(routed or (), map(Version, routed or (), versions or (), secrets or ()), strict=True)),
    )
