"""``webhookd demo``: the whole main job on this machine, with nothing to install beside the ``embedded`` extra.

Belongs here: the story. The parts are the real ones: an embedded PostgreSQL and Kafka-protocol broker, the service as
``webhookd serve`` runs it, and a receiver (``demo_receiver``) that verifies with the published ``standardwebhooks``
library. Everything binds 127.0.0.1, with random keys.
"""

from __future__ import annotations

import argparse
import asyncio
import socket
import sys
from asyncio.subprocess import Process
from base64 import b64encode
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from aiohttp import ClientError, ClientSession
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from service.lifecycle import Rng, SystemClock, SystemRng, run_on_uvloop
from service.store.migrating import migrate
from service.tools.demo_receiver import COLUMNS, Receipt, SampleReceiver
from service.tools.embedded import embedded_broker, embedded_postgres

TENANT, BATCH, TOPIC = "acct_demo", "invoices-nov", "extraction.jobs"
PATIENCE = 60.0  # seconds for any one step
RETRY_SECONDS = 1


class ServiceEnded(Exception):
    """The service ended before it was ready."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--keep", action="store_true", help="leave it running and print where docs and metrics are")


def run(arguments: argparse.Namespace) -> int:
    """Run the demo: 0 only if every expected delivery arrived and verified."""
    console = Console(highlight=False)
    try:
        return run_on_uvloop(_demo(console, keep=arguments.keep))
    except KeyboardInterrupt:
        return 130
    except TimeoutError:
        console.print(f"[red]something did not happen within {PATIENCE:.0f} seconds[/]")
        return 1
    except ServiceEnded as ended:
        console.print(f"[red]the service ended by itself, with status {ended}[/]")
        return 1


async def _demo(console: Console, *, keep: bool) -> int:
    async with AsyncExitStack() as stack:
        parts = await _start(stack, console)
        receipts = await asyncio.wait_for(_while_it_lives(parts, _tell_story(parts, console)), 3 * PATIENCE)
        well = _report(console, receipts)
        if keep:
            console.print(f"API docs  {parts.api}/docs\nMetrics   {parts.ops}/metrics\nCtrl-C ends it.")
            await asyncio.Event().wait()
    return 0 if well else 1


@dataclass(frozen=True, slots=True)
class Parts:
    """The running parts, as the story uses them."""

    api: str
    ops: str
    http: ClientSession
    producer: AIOKafkaProducer
    receiver: SampleReceiver
    process: Process


async def _while_it_lives(parts: Parts, story: Coroutine[Any, Any, list[Receipt]]) -> list[Receipt]:
    """Tell the story, as long as the service lives. Raises ServiceEnded."""
    async with asyncio.TaskGroup() as group:
        told, ended = group.create_task(story), group.create_task(parts.process.wait())
        await asyncio.wait({told, ended}, return_when=asyncio.FIRST_COMPLETED)
        if not told.done():
            told.cancel()
            raise ServiceEnded(parts.process.returncode)
        ended.cancel()
    return told.result()


async def _start(stack: AsyncExitStack, console: Console) -> Parts:
    console.print("Starting PostgreSQL and a Kafka broker from wheels, the service, and a receiver …")
    database = await stack.enter_async_context(embedded_postgres(None))
    broker = await stack.enter_async_context(embedded_broker())
    await migrate(database)
    await _create_topic(broker)
    receiver = await stack.enter_async_context(SampleReceiver.listen())
    operator_key, environment = _environment(database, broker, SystemRng())
    api, ops, process = await stack.enter_async_context(_service(environment))
    headers = {"authorization": f"Bearer {operator_key}", "x-tenant-id": TENANT}
    http = await stack.enter_async_context(ClientSession(headers=headers))
    producer = AIOKafkaProducer(bootstrap_servers=broker)
    await producer.start()
    stack.push_async_callback(producer.stop)
    return Parts(api, ops, http, producer, receiver, process)


def _environment(database: str, broker: str, rng: Rng) -> tuple[str, dict[str, str]]:
    operator_key = rng.token(24).hex()
    return operator_key, {
        "WEBHOOKD_DATABASE_URL": database,
        "WEBHOOKD_KAFKA_BOOTSTRAP_SERVERS": broker,
        "WEBHOOKD_KAFKA_TOPICS": TOPIC,
        "WEBHOOKD_OPERATOR_KEY": operator_key,
        "WEBHOOKD_ENCRYPTION_KEYS": f"demo:{b64encode(rng.token(32)).decode()}",
        "WEBHOOKD_API_HOST": "127.0.0.1",
        "WEBHOOKD_API_PORT": _free_port(),
        "WEBHOOKD_OPS_HOST": "127.0.0.1",
        "WEBHOOKD_OPS_PORT": _free_port(),
        "WEBHOOKD_ALLOW_HTTP": "true",
        "WEBHOOKD_EGRESS_ALLOW": "127.0.0.1/32:*",
        "WEBHOOKD_EGRESS_PORTS": "*",
        "WEBHOOKD_LOG_LEVEL": "error",
        "WEBHOOKD_LOG_FORMAT": "console",
    }


@asynccontextmanager
async def _service(environment: dict[str, str]) -> AsyncIterator[tuple[str, str, Process]]:
    """Run ``webhookd serve`` inside, as a process of its own; yields the addresses of its API and operations port."""
    command = (sys.executable, "-m", "service", "serve")
    process = await asyncio.create_subprocess_exec(*command, env=environment)
    api, ops = (f"http://127.0.0.1:{environment[f'WEBHOOKD_{name}_PORT']}" for name in ("API", "OPS"))
    try:
        await asyncio.wait_for(_until_ready(process, ops), PATIENCE)
        yield api, ops, process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _until_ready(process: Process, ops: str) -> None:
    async with ClientSession() as http:
        while process.returncode is None:
            with suppress(ClientError):
                async with http.get(f"{ops}/readyz") as answer:
                    if answer.status == HTTPStatus.OK:
                        return
            await asyncio.sleep(0.05)
    raise ServiceEnded(process.returncode)


def _free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


async def _create_topic(broker: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=1)])
    finally:
        await admin.close()


# The story


async def _tell_story(parts: Parts, console: Console) -> list[Receipt]:
    receiver = parts.receiver
    receiver.secret = await _register(parts)
    console.print(f"Registered a webhook for batch [bold]{BATCH}[/]; the receiver will refuse the first try.")
    receiver.refuse_next = 1
    for job in ("doc_1", "doc_2", "doc_3"):
        await _produce(parts, "job.queued", job, status="queued")
    for job, status in (("doc_1", "succeeded"), ("doc_2", "failed"), ("doc_3", "succeeded")):
        await _produce(parts, "job.completed", job, status=status)
    console.print("Produced three jobs; two succeed, one fails. Waiting for the first finish …")
    await receiver.wait_for(accepted=1, seconds=PATIENCE)
    console.print("Reprocessing [bold]doc_2[/], with no new registration …")
    await _produce(parts, "job.queued", "doc_2", status="queued", generation=2)
    await _produce(parts, "job.completed", "doc_2", status="succeeded", generation=2)
    await receiver.wait_for(accepted=2, seconds=PATIENCE)
    return receiver.receipts


async def _register(parts: Parts) -> str:
    registration = {"url": parts.receiver.url, "retry_schedule": [RETRY_SECONDS, 5, 30]}
    async with parts.http.put(f"{parts.api}/v1/batches/{BATCH}/webhook", json=registration) as answer:
        answer.raise_for_status()
        secret: str = (await answer.json())["secret"]
        return secret


async def _produce(parts: Parts, event_type: str, job_id: str, *, status: str, generation: int = 1) -> None:
    now = SystemClock().now().isoformat()
    event: dict[str, Any] = {
        "event_id": f"evt_{job_id}_{generation}_{event_type}",
        "event_type": event_type,
        "source": "imagetotable",
        "occurred_at": now,
        "tenant_id": TENANT,
        "job_id": job_id,
        "batch": {"name": BATCH, "total": 3, "version": 1},
        "generation": generation,
        "status": status,
        "created_at": now if event_type == "job.queued" else None,
        "completed_at": now if event_type == "job.completed" else None,
    }
    await parts.producer.send_and_wait(TOPIC, orjson.dumps(event), key=f"{TENANT}/{BATCH}".encode())


# The end


def _report(console: Console, receipts: list[Receipt]) -> bool:
    table = Table(*COLUMNS, box=SIMPLE_HEAD, pad_edge=False)
    for receipt in receipts:
        table.add_row(*receipt.cells())
    console.print(table)
    well = _as_expected(receipts)
    console.print(
        "[green]First finish, retry and re-notification arrived, each verified.[/]"
        if well
        else "[red]Not what was expected.[/]"
    )
    return well


def _as_expected(receipts: list[Receipt]) -> bool:
    if [(r.generation, r.answered, r.verified) for r in receipts] != [(1, 503, True), (1, 200, True), (2, 200, True)]:
        return False
    refused, accepted, renotified = receipts
    return refused.message_id == accepted.message_id != renotified.message_id and refused.body == accepted.body
