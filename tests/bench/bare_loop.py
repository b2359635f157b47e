"""The least that could stand in the product's place: aiokafka's ``getmany``, a POST for each record, nothing stored.

    python -m tests.bench.bare_loop <bootstrap servers> <topic> <url>

Prints a line once it reads; ends by signal.
"""

# ruff: noqa: T201  # it prints that it is ready
from __future__ import annotations

import argparse
import asyncio
from typing import Any

import aiohttp
from aiokafka import AIOKafkaConsumer, TopicPartition

from service.ingest.broker import MAX_PARTITION_FETCH_BYTES, KafkaOptions
from service.ingest.worker import Limits
from service.lifecycle import run_on_uvloop, tune_gc
from tests.bench.sender import FIXED, attempt_headers
from tests.bench.stage import PARTITIONS

AT_ONCE = 256
BODY_SIZE = 1024


class Posting:
    """POSTs records, a bounded number at once."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = url
        self._headers = [*FIXED, *attempt_headers()]
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def take(self, group: asyncio.TaskGroup, value: bytes) -> None:
        """Start a record's POST as soon as there is room."""
        await self._slots.acquire()
        group.create_task(self._post(value.ljust(BODY_SIZE)))

    async def _post(self, body: bytes) -> None:
        try:
            async with self._http.post(self._url, data=body, headers=self._headers) as answer:
                await answer.read()
        finally:
            self._slots.release()


async def run(bootstrap_servers: str, topic: str, url: str) -> None:
    consumer = build_consumer(bootstrap_servers)
    await consumer.start()
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    await consumer.seek_to_beginning(*partitions)
    tune_gc()
    print("ready", flush=True)
    limits = Limits()
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http, asyncio.TaskGroup() as group:
        posting = Posting(http, url)
        while True:
            found: dict[Any, list[Any]] = await consumer.getmany(
                timeout_ms=int(limits.poll_wait * 1000), max_records=limits.max_records
            )
            for records in found.values():
                for record in records:
                    await posting.take(group, record.value)


def build_consumer(bootstrap_servers: str) -> AIOKafkaConsumer:
    """Build one that fetches like the product's."""
    return AIOKafkaConsumer(
        bootstrap_servers=bootstrap_servers,
        enable_auto_commit=False,
        isolation_level="read_committed",
        fetch_max_wait_ms=int(KafkaOptions(bootstrap_servers=(), topics=()).fetch_wait * 1000),
        max_partition_fetch_bytes=MAX_PARTITION_FETCH_BYTES,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("bootstrap_servers", "topic", "url"):
        parser.add_argument(name)
    arguments = parser.parse_args()
    run_on_uvloop(run(arguments.bootstrap_servers, arguments.topic, arguments.url))


if __name__ == "__main__":
    main()
