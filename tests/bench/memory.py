"""P6: what an attempt in flight costs in memory.

Belongs here: attempts that hang. Their webhooks are few and have accepted something before, so that what is measured is
attempts, not webhooks.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.bench.latency import Clocked, opened_receiver
from tests.bench.metering import read_memory
from tests.bench.queue import HANGING_BODY, fill, opened_queue, register
from tests.bench.receiver import ADDRESSES
from tests.bench.reporting import Figure
from tests.bench.stage import BenchError, Stage
from tests.support.certs import Authority, issue
from tests.support.delivering import Queue

PER_WEBHOOK = 50  # of a tenant at a host
TARGETS = {"plain": 12, "TLS": 80}
WITHIN = 25.0  # before the first deadline


def issue_certificate(folder: Path, *names: str) -> tuple[Path, Path, Path]:
    """Make a CA and a certificate that it signs: the CA's file, the certificate's, the key's."""
    authority = Authority(folder)
    leaf = issue(names[0], authority.root, names=names)
    certificate, key = folder / "leaf.pem", folder / "leaf.key"
    certificate.write_bytes(leaf.pem())
    key.write_bytes(leaf.key_pem())
    return authority.ca_file, certificate, key


async def measure_memory(stage: Stage) -> list[Figure]:
    """P6."""
    plain, secure = stage.scale.in_flight
    ca_file, *files = issue_certificate(stage.directory, *ADDRESSES)
    stage.tell(f"P6: {plain} plain")
    async with opened_receiver(stage) as receiver:
        figures = [await _measure(stage, receiver, "plain", plain)]
    stage.tell(f"P6: {secure} over TLS")
    async with opened_receiver(stage, "--tls", *files) as receiver:
        figures.append(await _measure(stage, receiver, "TLS", secure, ca_file=ca_file))
    return figures


async def _measure(stage: Stage, receiver: Clocked, label: str, count: int, **settings: object) -> Figure:
    database = await stage.new_database()
    scheme = "http" if label == "plain" else "https"
    urls = [f"{scheme}://{address}:{receiver.port}/hook" for address in ADDRESSES]
    async with opened_queue(database) as queue:
        keys = await register(queue, urls, max(len(urls), -(-count // PER_WEBHOOK)))
        async with stage.service(
            database, "deliver", max_in_flight=count, request_timeout="30s", **settings
        ) as service:
            await fill(queue.connection, keys, "warm", 2 * len(keys))
            await _wait_until_done(stage, queue)
            before = read_memory(service.pid)
            await fill(queue.connection, keys, "hang", count, body=HANGING_BODY)
            in_flight = await _wait_for_attempts(service, count)
            used = read_memory(service.pid) - before
            service.end()
    raw = f"{used / 2**20:.1f} MiB for {in_flight:,.0f} in flight, {before / 2**20:.0f} MiB before"
    return Figure("P6", used / 1024 / in_flight, TARGETS[label], label, raw)


async def _wait_until_done(stage: Stage, queue: Queue) -> None:
    deadline = time.monotonic() + stage.scale.patience
    while await queue.count("deliveries"):
        if time.monotonic() > deadline:
            raise BenchError("the warm-up was not delivered")
        await asyncio.sleep(0.1)
    await asyncio.sleep(1.0)


async def _wait_for_attempts(service, count: int) -> float:
    """Until so many attempts are in flight, or no more come before the first deadline; how many are."""
    deadline, in_flight = time.monotonic() + WITHIN, 0.0
    while in_flight < count and time.monotonic() < deadline:
        await asyncio.sleep(0.25)
        in_flight = await service.fetch_metric("deliveries_in_flight") or 0.0
    if in_flight < count / 2:
        raise BenchError(f"only {in_flight:.0f} of {count} attempts are in flight: {service.tail(2000)}")
    return in_flight
