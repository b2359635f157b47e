"""The words that traces are told in: what a producer writes to Kafka, and what a tenant sees through the API.

Belongs here: building events, writing records, waiting for what an outsider can see. Does not belong here: processes
(`tests.support.service`) and receivers (`tests.support.receiving`).
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import ClientSession
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.support.receiving import Receiver
from tests.support.service import Api, Service, eventually, make_tenant_id, name_in_path

Event = dict[str, Any]

QUICK = [1] * 30
"""A retry schedule of a second each."""
LATER = [3600]
"""One that leaves a refused delivery `retrying` for the rest of the test."""

NOBODY = "http://127.0.0.1:9/"
UNFINISHED = ("pending", "in_flight", "retrying")

_numbers = itertools.count(1)


def now() -> str:
    return datetime.now(UTC).isoformat()


# --- What a producer writes ---------------------------------------------------------------------------------------


def build_event(event_type: str, job_id: str | None = None, **fields: Any) -> Event:
    event = {"event_id": f"evt_{next(_numbers)}", "event_type": event_type, "occurred_at": now(), "job_id": job_id}
    return {name: value for name, value in {**event, **fields}.items() if value is not None}


def queued(job_id: str, **fields: Any) -> Event:
    return build_event("job.queued", job_id, **{"status": "queued", **fields})


def started(job_id: str, **fields: Any) -> Event:
    return build_event("job.started", job_id, **{"status": "processing", "started_at": now(), **fields})


def completed(job_id: str, status: str = "succeeded", **fields: Any) -> Event:
    """A finished job, with the producer's own word for how it ended."""
    return build_event("job.completed", job_id, **{"status": status, "completed_at": now(), **fields})


def sealed(**fields: Any) -> Event:
    return build_event("batch.sealed", **fields)


def deleted(**fields: Any) -> Event:
    return build_event("batch.deleted", **fields)


# --- Kafka --------------------------------------------------------------------------------------------------------


async def create_topic(bootstrap_servers: str, name: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap_servers)
    await admin.start()
    try:
        answer = await admin.create_topics([NewTopic(name, partitions, 1)])
    finally:
        await admin.close()
    assert [error[:2] for error in answer.topic_errors] == [(name, 0)], answer


class Topic:
    """A topic as producers use it."""

    def __init__(self, producer: AIOKafkaProducer, name: str, partitions: int) -> None:
        self._producer = producer
        self.name = name
        self.partitions = partitions

    async def write(self, events: Iterable[Event], partition: int | None = None) -> None:
        """Write records, keyed as the integration guide says, and return when the broker has them."""
        acknowledged = [
            await self._producer.send(self.name, orjson.dumps(event), key=build_key(event), partition=partition)
            for event in events
        ]
        for each in acknowledged:
            await each

    async def write_cloud_event(self, event: Event) -> None:
        """Write a record in CloudEvents structured mode."""
        headers = [("content-type", b"application/cloudevents+json")]
        await self._producer.send_and_wait(
            self.name, orjson.dumps(event), key=build_key(event["data"]), headers=headers
        )


def build_key(event: Event) -> bytes:
    batch = event.get("batch")
    return f"{event['tenant_id']}/{batch['name'] if batch else event['job_id']}".encode()


@asynccontextmanager
async def opened_topic(bootstrap_servers: str, name: str, partitions: int) -> AsyncIterator[Topic]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, linger_ms=1)
    await producer.start()
    try:
        yield Topic(producer, name, partitions)
    finally:
        await producer.stop()


# --- A tenant -----------------------------------------------------------------------------------------------------


@dataclass
class Tenant:
    """One tenant: its producer, and its owner at the admin API."""

    api: Api
    topic: Topic
    source: str = "native"

    @property
    def tenant_id(self) -> str:
        return self.api.tenant

    def batch(self, name: str, **declared: Any) -> Batch:
        """A batch by name; `declared` (id, total, version) goes with every event."""
        return Batch(self, name, declared)

    async def produce(self, *events: Event, partition: int | None = None) -> None:
        """Write events in this order."""
        await self.topic.write([self.complete(event) for event in events], partition)

    def complete(self, event: Event) -> Event:
        return {"tenant_id": self.tenant_id, "source": self.source, **event}

    async def caught_up(self) -> None:
        """Return when all that was produced before is ingested: a marker behind it, in every partition, is known."""
        markers = [f"marker-{next(_numbers)}" for _ in range(self.topic.partitions)]
        for partition, marker in enumerate(markers):
            await self.produce({**queued(marker), "source": "native"}, partition=partition)
        for marker in markers:
            await self.until_known(marker)

    async def until_known(self, job_id: str) -> None:
        await eventually(lambda: self.api.find(f"/v1/jobs/{name_in_path(job_id)}"))

    async def quiet(self) -> None:
        """Return when all that was produced before is ingested, settled, and no longer on its way to any receiver."""
        await self.caught_up()
        await self._settled()
        await self.idle()

    async def _settled(self) -> None:
        """Return when settle windows that were open are over: one that opens now, of somebody else, is."""
        other = replace(self, api=self.api.of_tenant(f"{self.tenant_id}-control"), source="native")
        control = other.batch(f"control-{next(_numbers)}")
        await other.api.put(f"{control.path}/webhook", {"url": NOBODY, "retry_schedule": LATER})
        await control.produce(completed(control.name))
        await eventually(control.deliveries)
        await other.api.delete(f"{control.path}/webhook")

    async def idle(self) -> None:
        """Return when no delivery waits for an attempt or for its end."""
        await eventually(self._is_idle)

    async def _is_idle(self) -> bool:
        for state in UNFINISHED:
            if (await self.api.get(f"/v1/deliveries?state={state}&limit=1"))["data"]:
                return False
        return True

    async def deliveries(self, **filters: Any) -> list[Any]:
        """Deliveries, oldest first."""
        rows = await self.api.list("/v1/deliveries", **{name: str(value) for name, value in filters.items()})
        return rows[::-1]

    async def delivery(self, state: str, **filters: Any) -> Any:
        """The one delivery that matches, once it is in `state`."""

        async def found() -> Any:
            matching = [each for each in await self.deliveries(**filters) if each["state"] == state]
            assert len(matching) <= 1, matching
            return matching[0] if matching else None

        try:
            return await eventually(found)
        except AssertionError as error:
            raise AssertionError(f"no {state} delivery in {await self.deliveries(**filters)}") from error

    async def make_default_secret(self) -> str:
        """The secret that signs for one-shot URLs."""
        return (await self.api.post("/v1/signing-keys/rotate"))["secret"]

    async def register(self, receiver: Receiver, **settings: Any) -> Any:
        """An account webhook: the answer has `webhook_id` and `secret`."""
        return await self.api.post("/v1/webhooks", {"url": receiver.url, "retry_schedule": QUICK, **settings})


@dataclass(frozen=True)
class Batch:
    """A batch by its name."""

    tenant: Tenant
    name: str
    declared: Event

    @property
    def path(self) -> str:
        return f"/v1/batches/{name_in_path(self.name)}"

    async def produce(self, *events: Event, partition: int | None = None) -> None:
        """Write events of this batch, in this order."""
        await self.tenant.produce(*(self.complete(event) for event in events), partition=partition)

    def complete(self, event: Event) -> Event:
        return self.tenant.complete({"batch": {"name": self.name, **self.declared}, **event})

    async def register(self, receiver: Receiver, **settings: Any) -> Any:
        """`PUT` its webhook."""
        return await self.tenant.api.put(
            f"{self.path}/webhook", {"url": receiver.url, "retry_schedule": QUICK, **settings}
        )

    async def webhook(self) -> Any | None:
        return await self.tenant.api.find(f"{self.path}/webhook")

    async def get(self) -> Any:
        return await self.tenant.api.get(self.path)

    async def find(self) -> Any | None:
        return await self.tenant.api.find(self.path)

    async def post(self, action: str, body: Any = None) -> Any:
        return await self.tenant.api.post(f"{self.path}/{action}", {} if body is None else body)

    async def finished(self, generation: int) -> Any:
        """The batch, once it is all done for the `generation`-th time."""

        async def state() -> Any:
            seen = await self.find()
            return seen if seen and seen["all_done"] and seen["generation"] == generation else None

        return await eventually(state)

    async def deliveries(self, **filters: Any) -> list[Any]:
        return await self.tenant.deliveries(batch=self.name, **filters)

    async def delivery(self, state: str, **filters: Any) -> Any:
        return await self.tenant.delivery(state, batch=self.name, **filters)


@asynccontextmanager
async def new_tenant(service: Service, topic: Topic) -> AsyncIterator[Tenant]:
    async with ClientSession() as http:
        yield Tenant(Api(service.api_url, make_tenant_id(), http), topic)


def generations_of(jobs: Sequence[Event]) -> dict[str, int]:
    """In which finish each job's run first appeared."""
    return {job["job_id"]: job["batch_generation"] for job in jobs}
