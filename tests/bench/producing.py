"""Writes job events: as fast as it can, or at a rate.

    python -m tests.bench.producing <bootstrap servers> <topic> <run> [--count N] [--rate R --seconds S]
        [--tenants N] [--events queued --batch NAME]

One event a record, each of one job that has just finished, tenants in turn; its job id names the run and the monotonic
instant at which it was made. Prints how many were written, and by how many ms the writer was late at the worst.
"""

# ruff: noqa: T201  # it prints its figures
from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import orjson
from aiokafka import AIOKafkaProducer

from service.lifecycle import run_on_uvloop, tune_gc

TICK = 0.002
PAD = "x" * 290
"""With it, a body has 1 KB."""


def name_tenant(number: int) -> str:
    return f"bench_{number}"


class Events:
    """Job events as a producer makes them."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._numbers = itertools.count()

    def build(self) -> tuple[bytes, bytes]:
        """Key and value of the next record."""
        number, now = next(self._numbers), datetime.now(UTC).isoformat()
        job_id = f"at-{self._arguments.run}-{time.monotonic_ns()}-{number}"
        tenant_id = name_tenant(number % self._arguments.tenants)
        event = {
            "event_id": f"evt-{job_id}",
            "event_type": f"job.{self._arguments.events}",
            "occurred_at": now,
            "tenant_id": tenant_id,
            "job_id": job_id,
            "metadata": {"pad": PAD},
            **self._build_rest(now),
        }
        return f"{tenant_id}/{self._arguments.batch or job_id}".encode(), orjson.dumps(event)

    def _build_rest(self, now: str) -> dict[str, object]:
        batch = self._arguments.batch
        rest: dict[str, object] = {"batch": {"name": batch}} if batch else {}
        if self._arguments.events == "completed":
            return {"status": "succeeded", "completed_at": now, **rest}
        return {"status": "queued", **rest}


async def write_all(producer: AIOKafkaProducer, topic: str, events: Events, count: int) -> tuple[int, float]:
    last = [await producer.send(topic, value, key) for key, value in (events.build() for _ in range(count))]
    await asyncio.gather(*last)
    return count, 0.0


def schedule(rate: float, seconds: float) -> Iterator[tuple[float, int]]:
    """When, from the start on, how many are to be written."""
    written = 0
    for tick in range(int(seconds / TICK)):
        due = int(rate * (tick + 1) * TICK)
        if due > written:
            yield tick * TICK, due - written
            written = due


async def write_at_rate(
    producer: AIOKafkaProducer, topic: str, events: Events, rate: float, seconds: float
) -> tuple[int, float]:
    start, written, late = time.monotonic(), 0, 0.0
    for at, count in schedule(rate, seconds):
        await asyncio.sleep(max(0.0, start + at - time.monotonic()))
        late = max(late, time.monotonic() - start - at)
        for _ in range(count):
            key, value = events.build()
            await producer.send(topic, value, key)
        written += count
    await producer.flush()
    return written, late


async def produce(arguments: argparse.Namespace) -> None:
    linger = 5 if arguments.count else 0
    producer = AIOKafkaProducer(
        bootstrap_servers=arguments.bootstrap_servers, acks="all", linger_ms=linger, max_batch_size=1 << 18
    )
    await producer.start()
    try:
        tune_gc()
        events, topic = Events(arguments), arguments.topic
        if arguments.count:
            written, late = await write_all(producer, topic, events, arguments.count)
        else:
            written, late = await write_at_rate(producer, topic, events, arguments.rate, arguments.seconds)
    finally:
        await producer.stop()
    print(orjson.dumps({"written": written, "late_ms": late * 1e3}).decode())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap_servers", "topic", "run"):
        parser.add_argument(name)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--rate", type=float, default=100.0)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--tenants", type=int, default=1)
    parser.add_argument("--events", choices=("completed", "queued"), default="completed")
    parser.add_argument("--batch")
    run_on_uvloop(produce(parser.parse_args()))


if __name__ == "__main__":
    main()
