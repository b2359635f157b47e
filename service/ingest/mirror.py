"""The worker that copies dead letters to a topic, for people who watch topics. The database stays the original.

Belongs here: which letters, and in what form. It reads them from the database, so that nothing ever waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from service.ingest.broker import BrokerUnavailable, TooBig
from service.ingest.poll import Headers, Partition
from service.lifecycle import Stop
from service.ports import StoreUnavailable

BATCH = 20  # letters that are read at a time
EVERY = 30.0  # seconds between looks without being woken
CUT = ("webhookd-dead-letter-cut", b"true")
_TO_CLOSE = 2.0  # seconds


class Letter(Protocol):
    """A stored dead letter."""

    @property
    def dead_letter_id(self) -> int: ...
    @property
    def partition(self) -> Partition: ...
    @property
    def offset(self) -> int: ...
    @property
    def reason(self) -> str: ...
    @property
    def detail(self) -> str: ...
    @property
    def key(self) -> bytes | None: ...
    @property
    def headers(self) -> Headers: ...
    @property
    def value(self) -> bytes | None: ...


class Letters(Protocol):
    """Where they are. Every method may raise StoreUnavailable."""

    async def list_unmirrored(self, owner: str, limit: int) -> Sequence[Letter]: ...
    async def mark_mirrored(self, dead_letter_ids: Collection[int]) -> None: ...


class Topic(Protocol):
    """Where they go. ``open`` and ``send`` may raise BrokerUnavailable, ``send`` also TooBig."""

    async def open(self) -> None: ...
    async def send(self, key: bytes | None, value: bytes | None, headers: Headers) -> None: ...
    async def close(self, seconds: float) -> None: ...


class DeadLetterMirror:
    """A Worker. It copies the letters of the partitions that this process owns, each at least once."""

    name = "dead_letter_mirror"

    def __init__(
        self,
        letters: Letters,
        connect: Callable[[], Topic],
        owner: str,
        tell: Callable[..., object],
        every: float = EVERY,
    ) -> None:
        """``owner`` is ``KafkaIngest.instance``."""
        self._letters = letters
        self._connect = connect
        self._owner = owner
        self._tell = tell
        self._every = every
        self._woken = asyncio.Event()

    def wake(self) -> None:
        """There may be a new one."""
        self._woken.set()

    async def run(self, stop: Stop) -> None:
        """Copy until the stop; what is left then is copied after the next start."""
        while not stop.is_set():
            try:
                await self._copy_all(stop)
            except (BrokerUnavailable, StoreUnavailable) as error:
                self._tell("dead_letter_mirror_waits", reason=str(error))
                await stop.pause(self._every / 3)
            else:
                await self._wait(stop)

    async def _wait(self, stop: Stop) -> None:
        async with asyncio.TaskGroup() as group:
            waits = {group.create_task(stop.wait()), group.create_task(self._woken.wait())}
            await asyncio.wait(waits, timeout=self._every, return_when=asyncio.FIRST_COMPLETED)
            for task in waits:
                task.cancel()
        self._woken.clear()

    async def _copy_all(self, stop: Stop) -> None:
        letters = await self._letters.list_unmirrored(self._owner, BATCH)
        if not letters:
            return
        topic = self._connect()
        try:
            await topic.open()
            while letters and not stop.is_set():
                await self._copy(topic, letters)
                letters = await self._letters.list_unmirrored(self._owner, BATCH)
        finally:
            await topic.close(_TO_CLOSE)

    async def _copy(self, topic: Topic, letters: Sequence[Letter]) -> None:
        for letter in letters:
            facts = _build_headers(letter)
            try:
                await topic.send(letter.key, letter.value, (*letter.headers, *facts))
            except TooBig:  # what was too big to be an event may be too big for this topic (F25)
                await topic.send(None, None, (*facts, CUT))
        await self._letters.mark_mirrored([letter.dead_letter_id for letter in letters])


def _build_headers(letter: Letter) -> Headers:
    facts = {
        "reason": letter.reason,
        "detail": letter.detail,
        "topic": letter.partition.topic,
        "partition": str(letter.partition.number),
        "offset": str(letter.offset),
    }
    return tuple((f"webhookd-dead-letter-{name}", text.encode()) for name, text in facts.items())
