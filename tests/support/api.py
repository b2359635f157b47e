"""The admin API over real HTTP and a real database, with the ingest pipeline behind it.

Belongs here: the server, clients, events and looks into the tables. Does not belong here: what a test expects.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from yarl import URL

from service.api.app import build_api
from service.api.parts import ApiLimits, Parts
from service.delivery.arrivals import NoEngine
from service.domain.batches import Settling
from service.domain.webhooks import WebhookDefaults
from service.inbound import Bounds, listening
from service.ingest.announcing import Announcer
from service.ingest.applying import Ingestor
from service.ingest.lines import LineRules, TransactionLines
from service.ingest.parsing import Parser
from service.ingest.reading import Reader
from service.ingest.requests import EventRequests
from service.lifecycle import SystemClock, SystemRng
from service.ports import Tell
from service.profiles import load_profiles
from service.sealing import Sealer
from service.store.database import Database
from service.store.ingesting import PostgresIngestStore
from service.store.partitions import Partitions
from service.store.registry import Registry
from service.store.routing import OneShots, RoutingCopy
from tests.support.senders import loopback_policy

OPERATOR_KEY = "operator-key-of-the-tests-0123456789"
SETTLING = Settling(timedelta(seconds=2), timedelta(seconds=5))
SEALER = Sealer([("k1", b"\x07" * 32)])
URL_1 = "https://receiver.example/hook"
URL_2 = "https://other.example/hook?token=secret"


class ApiClock(SystemClock):
    """The machine's clocks plus what a test adds."""

    def __init__(self) -> None:
        self.added = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.added

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self.added)


@dataclass(frozen=True)
class Reply:
    status: int
    headers: Any
    raw: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.raw)

    @property
    def code(self) -> str:
        assert self.headers["Content-Type"].startswith("application/problem+json"), self.raw
        return self.json["code"]


@dataclass
class Api:
    """A client of one caller. ``as_key`` and ``as_tenant`` give others."""

    base: str
    http: aiohttp.ClientSession
    database: Database
    connection: asyncpg.Connection
    clock: ApiClock
    parts: Parts
    told: list[tuple[str, dict[str, object]]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    numbers: Any = field(default_factory=lambda: itertools.count(1))

    def as_key(self, key: str, tenant: str | None = None) -> Api:
        headers = {"Authorization": f"Bearer {key}"} | ({"X-Tenant-ID": tenant} if tenant else {})
        return replace(self, headers=headers)

    def as_tenant(self, tenant: str) -> Api:
        return replace(self, headers={**self.headers, "X-Tenant-ID": tenant})

    def as_basic(self, user: str, password: str) -> Api:
        token = base64.b64encode(f"{user}:{password}".encode()).decode()
        return replace(self, headers={"Authorization": f"Basic {token}"})

    async def call(
        self, method: str, path: str, body: Any = None, *, data: bytes | None = None, **headers: str
    ) -> Reply:
        """``path`` is sent as it is. Header names are written with underscores."""
        sent = {**self.headers, **{name.replace("_", "-"): value for name, value in headers.items()}}
        if body is not None:
            data = json.dumps(body).encode()
            sent.setdefault("Content-Type", "application/json")
        url = URL(self.base + path, encoded=True)
        sending = io.BytesIO(data) if data and len(data) > 1 << 20 else data
        async with self.http.request(
            method, url, data=sending, headers=sent, skip_auto_headers=["Content-Type"]
        ) as reply:
            return Reply(reply.status, reply.headers, await reply.read())

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.call("GET", path, **headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.call("POST", path, body, **headers)

    async def put(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.call("PUT", path, body, **headers)

    async def delete(self, path: str, **headers: str) -> Reply:
        return await self.call("DELETE", path, **headers)

    async def make_key(self, *roles: str, tenant: str | None = "t1") -> str:
        reply = await self.post("/v1/keys", {"roles": list(roles), **({"tenant_id": tenant} if tenant else {})})
        assert reply.status == 201, reply.raw
        return reply.json["key"]

    async def send(self, *events: dict[str, Any], tenant: str | None = None) -> list[dict[str, Any]]:
        """Post job events; return their results."""
        client = self.as_tenant(tenant) if tenant else self
        reply = await client.post("/v1/events", list(events))
        assert reply.status == 202, reply.raw
        return reply.json["results"]

    def event(self, event_type: str, job_id: str = "", batch: str | None = None, **more: Any) -> dict[str, Any]:
        return {
            "event_id": f"evt_{next(self.numbers)}",
            "event_type": event_type,
            "occurred_at": datetime.now(UTC).isoformat(),
            "tenant_id": self.headers.get("X-Tenant-ID", "t1"),
            **({"job_id": job_id} if job_id else {}),
            **({"batch": {"name": batch}} if batch else {}),
            **more,
        }

    async def finish(self, batch: str, *jobs: str, generation: int = 1, status: str = "succeeded") -> None:
        """Let jobs of a batch end, and with them the batch."""
        done = [
            self.event("job.completed", job, generation=generation, status=status)
            | {"batch": {"name": batch, "total": 1}}
            for job in jobs or ("job-1",)
        ]
        for result in await self.send(*done):
            assert result["outcome"] == "applied", result

    async def deliveries(self, query: str = "") -> list[dict[str, Any]]:
        reply = await self.get(f"/v1/deliveries{query}")
        assert reply.status == 200, reply.raw
        return reply.json["data"]

    async def fetch(self, statement: str, *args: object) -> list[asyncpg.Record]:
        return await self.connection.fetch(statement, *args)

    async def value(self, statement: str, *args: object) -> Any:
        return await self.connection.fetchval(statement, *args)

    async def conclude(self, state: int = 4, reason: str | None = None, where: str = "true") -> None:
        """Let waiting deliveries end, as a worker would record it."""
        await self.connection.execute(
            f"""WITH gone AS (DELETE FROM deliveries WHERE {where} RETURNING *)
            INSERT INTO deliveries_done (delivery_id, tenant_id, webhook_key, webhook_id, message_id, body_at, type, scope,
                group_key, batch_key, job_id, generation, state, reason, attempts, created_at, first_due_at, finished_at,
                extra)
            SELECT g.delivery_id, g.tenant_id, g.webhook_key, w.webhook_id, g.message_id, g.body_at, g.type, g.scope,
                g.group_key, g.batch_key, g.job_id, g.generation, $1, $2, greatest(g.attempts, 1), g.created_at, g.first_due_at, now(), g.extra
            FROM gone AS g JOIN webhooks AS w USING (webhook_key)""",
            state,
            reason,
        )
        if state == 4:
            await self.connection.execute(
                """INSERT INTO batch_delivered
                SELECT d.batch_key, max(d.generation) FROM deliveries_done AS d JOIN webhooks AS w USING (webhook_key)
                WHERE d.state = 4 AND w.kind = 0 AND d.scope = 0 GROUP BY d.batch_key
                ON CONFLICT (batch_key) DO UPDATE SET generation = excluded.generation"""
            )


class NoReport:
    """Counts nothing."""

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **fields: None


def build_events(
    database: Database, clock: SystemClock, tell: Tell, handoff: Any = None, directories: Iterable[Path] = ()
) -> EventRequests:
    profiles = load_profiles(directories)
    rng = SystemRng()
    one_shots = OneShots(SEALER, loopback_policy(), lambda: "whk_" + rng.token(10).hex())
    store = PostgresIngestStore(database, RoutingCopy(), one_shots)
    lines = TransactionLines(tell, tell, clock, rng, LineRules())
    ingestor = Ingestor(store, profiles, build_announcer(profiles, handoff), SETTLING, NoReport(), lines)
    age, kept = timedelta(hours=24), timedelta(days=400)
    reader = Reader(Parser(profiles), clock, notify_max_age=age, retention_state=kept)
    return EventRequests(reader, ingestor, NoReport())


def build_announcer(profiles: Any, handoff: Any = None) -> Announcer:
    return Announcer(profiles, 256_000, handoff or NoEngine(lambda: None))


def build_registry(clock: SystemClock, **more: Any) -> Registry:
    defaults = WebhookDefaults((5, 300, 1800), 15.0, 10)
    return Registry(SEALER, loopback_policy, defaults, SETTLING, clock, SystemRng(), **more)


@asynccontextmanager
async def running_api(
    dsn: str,
    *,
    limits: ApiLimits | None = None,
    events: bool = True,
    bounds: Bounds | None = None,
    handoff: Any = None,
    profiles: Iterable[Path] = (),
    **registry: Any,
) -> AsyncIterator[Api]:
    """Serve the API on a free port; the client calls as the operator for tenant ``t1``. ``profiles`` are directories."""
    clock = ApiClock()
    told: list[tuple[str, dict[str, object]]] = []

    def tell(event: str, /, **fields: object) -> None:
        told.append((event, fields))

    many = ApiLimits(reads=100_000, writes=100_000, tests_per_webhook=1000, test_wait=timedelta(seconds=5))
    async with Database(dsn, size=6) as database:
        await Partitions(database).make_ahead()
        parts = Parts(
            database=database,
            registry=build_registry(clock, **registry),
            clock=clock,
            limits=limits or many,
            operator_key=lambda: OPERATOR_KEY,
            tell=tell,
            events=build_events(database, clock, tell, handoff, profiles) if events else None,
        )
        async with listening(build_api(parts), "api", "127.0.0.1", 0, bounds) as port:
            connection = await asyncpg.connect(dsn)
            async with aiohttp.ClientSession() as http:
                api = Api(f"http://127.0.0.1:{port}", http, database, connection, clock, parts, told)
                yield api.as_key(OPERATOR_KEY, "t1")
            await connection.close()
