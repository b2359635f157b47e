"""A database with webhooks and due deliveries, filled by set-based SQL.

Belongs here: rows as the product would have made them. Does not belong here: what they are for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from service.store.database import PLANNING
from tests.bench.producing import name_tenant
from tests.bench.stage import SEALER
from tests.support.delivering import Queue

BODY = b'{"type":"extraction.completed","data":"' + b"x" * 983 + b'"}'
HANGING_BODY = b'{"hang":true,"data":"' + b"x" * 1_001 + b'"}'
MAX_IN_FLIGHT = 100

MESSAGES = """
INSERT INTO messages (message_id, tenant_id, type, scope, job_id, generation, source, finished_at, body_at, size)
SELECT $2 || '_' || n, w.tenant_id, 'extraction.completed', 1, 'job_' || $2 || '_' || n, 1, 'native', now(), now(), $4
FROM generate_series(0, $3::integer - 1) AS n
JOIN webhooks AS w ON w.webhook_key = ($1::bigint[])[n % cardinality($1::bigint[]) + 1]
"""
BODIES = """
INSERT INTO message_bodies (message_id, body_at, body)
SELECT $1 || '_' || n, now(), $3 FROM generate_series(0, $2::integer - 1) AS n
"""
DELIVERIES = """
INSERT INTO deliveries (
    tenant_id, webhook_key, lane, message_id, body_at, type, scope, group_key, job_id, generation, due_at
)
SELECT
    w.tenant_id, w.webhook_key, w.lane, $2 || '_' || n, now(), 'extraction.completed', 1,
    -abs(hashtextextended($2 || '_' || n, 0)), 'job_' || $2 || '_' || n, 1, now() + make_interval(secs => n * $4::double precision)
FROM generate_series(0, $3::integer - 1) AS n
JOIN webhooks AS w ON w.webhook_key = ($1::bigint[])[n % cardinality($1::bigint[]) + 1]
"""


@asynccontextmanager
async def opened_queue(dsn: str) -> AsyncIterator[Queue]:
    """The tables, with partitions for today, on a connection that plans as the service's do."""
    async with Queue(dsn) as queue:
        for name, value in PLANNING.items():
            await queue.connection.execute(f"SET {name} = {value}")
        yield queue


async def register(
    queue: Queue, urls: Sequence[str], count: int, *, tenants: int | None = None, first: int = 0, **columns: object
) -> list[int]:
    """Make account webhooks, one a tenant unless ``tenants`` says into how many they go; return their keys."""
    tenants = tenants or count
    columns = {"max_in_flight": MAX_IN_FLIGHT, "scopes": ["job"], "event_types": ["*"], **columns}
    async with queue.connection.transaction():
        keys = [
            await queue.webhook(
                urls[n % len(urls)], tenant_id=name_tenant(first + n % tenants), sealer=SEALER, **columns
            )
            for n in range(count)
        ]
        await queue.connection.execute(
            """INSERT INTO tenants (tenant_id, routing_version)
            SELECT DISTINCT tenant_id, 1 FROM webhooks WHERE webhook_key = ANY ($1)
            ON CONFLICT (tenant_id) DO UPDATE SET routing_version = tenants.routing_version + 1""",
            keys,
        )
    await queue.connection.execute("NOTIFY webhookd_webhooks")
    return keys


async def fill(
    connection: asyncpg.Connection,
    keys: Sequence[int],
    run: str,
    count: int,
    *,
    body: bytes | None = BODY,
    spread: float = 0.0,
) -> None:
    """Queue deliveries of fresh messages, over the webhooks in turn, due ``spread`` seconds after each other.

    Without messages and bodies if ``body`` is None.
    """
    async with connection.transaction():  # one instant: it finds a message's body
        if body is not None:
            await connection.execute(MESSAGES, keys, run, count, len(body))
            await connection.execute(BODIES, run, count, body)
        await connection.execute(DELIVERIES, keys, run, count, spread)
        await connection.execute("NOTIFY webhookd_due")
