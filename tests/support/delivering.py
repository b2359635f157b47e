"""The deliver role on a real database with a real sender: what the tests of delivery share.

Belongs here: making webhooks and due deliveries, running engines, looking into the tables. Does not belong here: what a
test expects.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import asyncpg

from service.delivery.assembly import DeliverRole, EnginePorts, EngineSettings, build_deliver_role
from service.delivery.attempting import AttemptRules, Sender
from service.delivery.entries import SendingDefaults
from service.domain.health import DEFAULT_RULES, Health, HealthRules
from service.domain.schedule import DEFAULT_SPREAD, Schedule
from service.domain.signing import Secret
from service.domain.targets import parse_url
from service.lifecycle import Heartbeats, Stop, SystemClock, SystemRng
from service.sealing import Sealer
from service.sender import HttpSender, build_tls_context
from service.store.catalog import WebhookCatalog
from service.store.codes import BreakerCode, WebhookKind
from service.store.database import Database
from service.store.deliveries import DeliveryStore
from service.store.health import HealthKeeping, dump_health
from service.store.listening import NotificationListener
from service.store.partitions import Partitions
from service.store.signing_keys import SigningKeys, seal_keys
from service.store.webhook_seals import hash_url, seal_headers, seal_url
from tests.support.senders import Names, loopback_policy

PATIENCE = 60.0
KEY = b"\x07" * 32
SECRET = b"0123456789abcdef0123456789abcdef"
SEALER = Sealer([("k1", KEY)])
SCHEDULE = Schedule(tuple(timedelta(seconds=s) for s in (5, 300, 1_800)), DEFAULT_SPREAD)
POLICY = loopback_policy()


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Wait for something that other tasks bring about."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.005)


@dataclass
class Watcher:
    """Remembers what delivery tells."""

    attempts: list[Any] = field(default_factory=list)
    finished: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    expired: int = 0
    disabled: int = 0
    claimed: int = 0
    events: list[tuple[str, dict[str, object]]] = field(default_factory=list)

    def attempt(self, outcome, *, slot_wait=None, first_delay=None, latency=None) -> None:
        self.attempts.append((outcome, slot_wait, first_delay, latency))

    def deliveries_finished(self, state: str, count: int = 1) -> None:
        self.finished[state] = self.finished.get(state, 0) + count

    def deliveries_claimed(self, count: int) -> None:
        self.claimed += count

    def webhooks_disabled(self, count: int = 1) -> None:
        self.disabled += count

    def leases_expired(self, count: int) -> None:
        self.expired += count

    def own_fault(self, kind: str) -> None:
        self.faults.append(kind)

    def tell(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))


class ShiftedClock(SystemClock):
    """The machine's monotonic clock plus what a test adds."""

    def __init__(self) -> None:
        self.added = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.added


@dataclass
class Role:
    """A running engine with its surroundings."""

    parts: DeliverRole
    watcher: Watcher
    stop: Stop
    clock: ShiftedClock
    heartbeats: Heartbeats
    task: asyncio.Task[None]
    store: Any

    async def end(self) -> None:
        """Stop cleanly and wait for the end."""
        self.stop.set()
        await self.task


class Queue:
    """The tables, as a test fills and reads them."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.connection: asyncpg.Connection = None
        self._numbers = itertools.count(1)

    async def __aenter__(self) -> Self:
        self.connection = await asyncpg.connect(self.dsn)
        async with Database(self.dsn, size=2) as database:
            await Partitions(database).make_ahead()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.connection.close()

    async def webhook(
        self,
        url: str,
        *,
        tenant_id: str = "t1",
        kind: WebhookKind = WebhookKind.ACCOUNT,
        batch_key: int | None = None,
        lane: int | None = None,
        secret: bytes | None = SECRET,
        headers: Sequence[tuple[str, str]] = (),
        sealer: Sealer = SEALER,
        **columns: object,
    ) -> int:
        """Register a webhook and return its key."""
        number = next(self._numbers)
        webhook_id = f"whk_{number}"
        now = datetime.now(UTC)
        keys = None if secret is None else SigningKeys((Secret(secret, now),))
        sealed_headers = b"[" + b",".join(f'["{n}","{v}"]'.encode() for n, v in headers) + b"]" if headers else None
        values: dict[str, object] = {
            "tenant_id": tenant_id,
            "webhook_id": webhook_id,
            "kind": int(kind),
            "batch_key": batch_key,
            "lane": 0,
            "url": seal_url(sealer, tenant_id, webhook_id, url),
            "url_hash": hash_url(tenant_id, url),
            "origin": "/".join(url.split("/", 3)[:3]),
            "custom_headers": seal_headers(sealer, tenant_id, webhook_id, sealed_headers) if sealed_headers else None,
            "secrets": None if keys is None else seal_keys(sealer, tenant_id, webhook_id, keys),
            **columns,
        }
        names, marks = ", ".join(values), ", ".join(f"${n}" for n in range(1, len(values) + 1))
        key: int = await self.connection.fetchval(
            f"INSERT INTO webhooks ({names}) VALUES ({marks}) RETURNING webhook_key", *values.values()
        )
        await self.connection.execute("UPDATE webhooks SET lane = $2 WHERE webhook_key = $1", key, lane or key)
        return key

    async def deliveries(
        self, webhook_key: int, count: int = 1, *, body: bytes = b'{"a":1}', **columns: object
    ) -> list[int]:
        """Queue deliveries of fresh messages, due now; return their ids."""
        number = next(self._numbers)
        hook = await self.connection.fetchrow("SELECT * FROM webhooks WHERE webhook_key = $1", webhook_key)
        ids = [f"msg_{number}_{n}" for n in range(count)]
        values: dict[str, object] = {"type": "extraction.completed", "scope": 1, "generation": 1, **columns}
        await self.connection.execute(
            """INSERT INTO messages (message_id, tenant_id, type, scope, generation, source, finished_at, body_at, size)
            SELECT m, $2, $3, $4, $5, 'native', now(), now(), $6 FROM unnest($1::text[]) AS m""",
            ids,
            hook["tenant_id"],
            values["type"],
            values["scope"],
            values["generation"],
            len(body),
        )
        await self.connection.execute(
            "INSERT INTO message_bodies SELECT message_id, body_at, $2 FROM messages WHERE message_id = ANY ($1)",
            ids,
            body,
        )
        names = "".join(f", {name}" for name in values)
        marks = "".join(f", ${n}" for n in range(4, 4 + len(values)))
        rows = await self.connection.fetch(
            f"""INSERT INTO deliveries (tenant_id, webhook_key, lane, message_id, body_at, due_at{names})
            SELECT m.tenant_id, $2::bigint, $3::bigint, m.message_id, m.body_at, now(){marks}
            FROM messages AS m WHERE message_id = ANY ($1) ORDER BY message_id RETURNING delivery_id""",
            ids,
            webhook_key,
            hook["lane"],
            *values.values(),
        )
        await self.connection.execute("NOTIFY webhookd_due")
        return [row["delivery_id"] for row in rows]

    async def change_url(self, webhook_key: int, url: str) -> None:
        """Replace a webhook's URL as the API does: with a new revision, and a notification."""
        hook = await self.connection.fetchrow("SELECT * FROM webhooks WHERE webhook_key = $1", webhook_key)
        await self.connection.execute(
            "UPDATE webhooks SET url = $2, revision = revision + 1, changed_at = now() WHERE webhook_key = $1",
            webhook_key,
            seal_url(SEALER, hook["tenant_id"], hook["webhook_id"], url),
        )
        await self.connection.execute("NOTIFY webhookd_webhooks")

    async def live(self, delivery_id: int) -> asyncpg.Record | None:
        return await self.connection.fetchrow("SELECT * FROM deliveries WHERE delivery_id = $1", delivery_id)

    async def done(self, delivery_id: int) -> asyncpg.Record | None:
        return await self.connection.fetchrow("SELECT * FROM deliveries_done WHERE delivery_id = $1", delivery_id)

    async def attempts(self, delivery_id: int) -> list[asyncpg.Record]:
        return await self.connection.fetch(
            "SELECT * FROM attempts WHERE delivery_id = $1 ORDER BY started_at", delivery_id
        )

    async def count(self, table: str, where: str = "true", *args: object) -> int:
        return await self.connection.fetchval(f"SELECT count(*) FROM {table} WHERE {where}", *args)

    async def execute(self, statement: str, *args: object) -> None:
        await self.connection.execute(statement, *args)

    async def now(self) -> datetime:
        """The instant that the database has."""
        return await self.connection.fetchval("SELECT now()")

    async def store_health(
        self, webhook_key: int, health: Health, written: str = "now()", held_until: str = "NULL"
    ) -> None:
        """Say how a webhook fares, as another process does; instants are SQL."""
        await self.connection.execute(
            f"""INSERT INTO webhook_health (webhook_key, health, breaker, held_until, updated_at)
            VALUES ($1, $2, $3, {held_until}, {written})
            ON CONFLICT (webhook_key) DO UPDATE
            SET health = excluded.health, breaker = excluded.breaker, held_until = excluded.held_until,
                updated_at = excluded.updated_at""",
            webhook_key,
            dump_health(health),
            int(BreakerCode[health.breaker.name]),
        )

    async def shift(self, seconds: float, delivery_id: int | None = None) -> None:
        """Let time pass for what waits: every instant of the queue moves into the past, and what became due is so now."""
        await self.connection.execute(
            """UPDATE deliveries
            SET due_at = CASE WHEN due_at > now() THEN greatest(due_at - $1::interval, now()) ELSE due_at - $1::interval END,
                first_due_at = first_due_at - $1::interval, held_at = held_at - $1::interval, lease_until = lease_until - $1::interval
            WHERE $2::bigint IS NULL OR delivery_id = $2""",
            timedelta(seconds=seconds),
            delivery_id,
        )
        await self.connection.execute("NOTIFY webhookd_due")

    async def wait(self, table: str, where: str, *args: object, count: int = 1) -> None:
        """Until so many rows of a table fit."""
        async with asyncio.timeout(PATIENCE):
            while await self.count(table, where, *args) < count:
                await asyncio.sleep(0.01)


def build_defaults(schedule: Schedule = SCHEDULE, rules: HealthRules = DEFAULT_RULES, **more: Any) -> SendingDefaults:
    return SendingDefaults(
        parse=lambda url, tenant: parse_url(url, POLICY, tenant), schedule=schedule, rules=rules, **more
    )


@asynccontextmanager
async def deliver(
    dsn: str,
    *,
    sender: Sender | None = None,
    defaults: SendingDefaults | None = None,
    sealer: Sealer = SEALER,
    lease: float = 60.0,
    max_in_flight: int = 200,
    drain: float = 5.0,
    wrap: Callable[[DeliveryStore], Any] = lambda store: store,
    rules: AttemptRules | None = None,
    heartbeats: Heartbeats | None = None,
    command_timeout: float = 30.0,
) -> AsyncIterator[Role]:
    """Run an engine; it is stopped at the end, unless the test did."""
    watcher, clock = Watcher(), ShiftedClock()
    heartbeats = heartbeats or Heartbeats(clock)
    async with (
        Database(dsn, size=6, command_timeout=command_timeout) as database,
        HttpSender(POLICY, Names(), build_tls_context()) as http,
    ):
        store = wrap(DeliveryStore(database))
        ports = EnginePorts(
            clock=clock,
            rng=SystemRng(),
            queue=store,
            webhooks=WebhookCatalog(database, sealer),
            health=HealthKeeping(database),
            listener=NotificationListener(dsn),
            sender=sender or http,
            heartbeats=heartbeats,
            observer=watcher,
            tell=watcher.tell,
        )
        settings = EngineSettings(
            defaults=defaults or build_defaults(),
            max_in_flight=max_in_flight,
            lease=lease,
            rules=rules or AttemptRules(),
        )
        parts = build_deliver_role(ports, settings)
        stop = Stop(clock, timedelta(seconds=drain))
        async with asyncio.TaskGroup() as group:
            task = group.create_task(parts.engine.run(stop))
            yield Role(parts, watcher, stop, clock, heartbeats, task, store)
            stop.set()
