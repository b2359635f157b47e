"""What stands before the embedded broker and makes up for what it does otherwise than Kafka.

It forwards frames, and of the protocol knows the first bytes of three requests. None of it is needed with Apache Kafka.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Relay"]

_FETCH, _JOIN_GROUP, _LEAVE_GROUP = 1, 11, 13  # API keys
_FETCH_INTERVAL = 0.01  # seconds between two Fetch requests of one connection


class Relay:
    """A port of its own before the broker's.

    - The broker answers a Fetch at once even if it has nothing and was asked to wait: unpaced, an idle aiokafka consumer
      sends 2,000 a second and fills a core. One passes every `_FETCH_INTERVAL` per connection.
    - Rebalances of one group must not overlap: `_Group`.
    - Its answers name the broker's port. Address and port stand side by side in every version of the protocol, so equal
      lengths can be swapped without parsing anything.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._named, self._names = b"", b""
        self._writers: set[asyncio.StreamWriter] = set()
        self._groups: defaultdict[bytes, _Group] = defaultdict(_Group)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[int]:
        """Yield the port to connect to."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = int(server.sockets[0].getsockname()[1])
        self._named, self._names = (b"127.0.0.1" + struct.pack(">i", number) for number in (self._broker_port, port))
        try:
            yield port
        finally:
            server.close()
            for writer in self._writers:
                writer.transport.abort()
            await server.wait_closed()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        broker_reader, broker_writer = await asyncio.open_connection("127.0.0.1", self._broker_port)
        pair = {writer, broker_writer}
        self._writers |= pair
        member = _Member()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._forward_requests(reader, broker_writer, member))
                tasks.create_task(self._forward_answers(broker_reader, writer, member))
        except* (ConnectionError, asyncio.IncompleteReadError):
            pass  # either side hung up: the other is hung up on
        finally:
            member.hang_up()
            self._writers -= pair
            for each in pair:
                each.transport.abort()

    async def _forward_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, member: _Member
    ) -> None:
        now = asyncio.get_running_loop().time
        next_fetch_at = 0.0
        while True:
            request = await _read_frame(reader)
            api_key = int.from_bytes(request[:2])
            if api_key == _FETCH:
                await asyncio.sleep(next_fetch_at - now())
                next_fetch_at = now() + _FETCH_INTERVAL
            elif api_key in {_JOIN_GROUP, _LEAVE_GROUP}:
                member.group = self._groups[_find_group(request)]
                await member.group.let_in(member)
                if api_key == _JOIN_GROUP:
                    member.joins(request)
            await _write_frame(writer, request)

    async def _forward_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, member: _Member
    ) -> None:
        while True:
            answer = await _read_frame(reader)
            member.takes(answer)
            await _write_frame(writer, answer.replace(self._named, self._names))


class _Group:
    """Who takes part in a group's rebalance.

    The broker's members notice the end of a rebalance up to 25 ms late. Who joins meanwhile begins the next, in which
    they count as missing: the leader is thrown out but stays leader in name, and nobody is ever assigned anything again.
    So while joins are under way only those join whom the rebalance waits for; all others, when it is over.
    """

    def __init__(self) -> None:
        self.joining: set[_Member] = set()
        self.joined: set[_Member] = set()
        self.awaited: set[_Member] = set()  # of the last rebalance, and not yet in this one
        self._over = asyncio.Event()
        self._over.set()

    async def let_in(self, member: _Member) -> None:
        """Return when a change of membership by `member` does no harm."""
        while self.joining and member not in self.awaited | self.joining:
            self._over.clear()
            await self._over.wait()
        self.awaited.discard(member)

    def leave(self, member: _Member) -> None:
        """Count without the member, whose join was answered or whose connection is gone."""
        self.joining.discard(member)
        if not self.joining:
            self.awaited, self.joined = self.awaited | self.joined, set()
            self._over.set()


class _Member:
    """What a connection has to do with a group, if anything."""

    def __init__(self) -> None:
        self.group: _Group | None = None
        self._correlation_id = b""
        self._error_at = 0

    def joins(self, request: bytes) -> None:
        """Take note of a JoinGroup request that is about to be sent."""
        assert self.group is not None
        self._correlation_id = request[4:8]
        has_throttle_time = int.from_bytes(request[2:4]) > 1  # by the request's version
        self._error_at = 8 if has_throttle_time else 4
        self.group.joining.add(self)

    def takes(self, answer: bytes) -> None:
        """Take note of an answer to anything."""
        if self.group is not None and self in self.group.joining and answer.startswith(self._correlation_id):
            if not any(answer[self._error_at : self._error_at + 2]):
                self.group.joined.add(self)
            self.group.leave(self)

    def hang_up(self) -> None:
        if self.group is not None:
            self.group.joined.discard(self)
            self.group.awaited.discard(self)
            self.group.leave(self)


def _find_group(request: bytes) -> bytes:
    """The first string after the client's id; in versions with compact strings it has a byte more, always the same."""
    start = 10 + max(0, *struct.unpack_from(">h", request, 8))
    (length,) = struct.unpack_from(">h", request, start)
    return request[start + 2 : start + 2 + length]


async def _read_frame(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(length)


async def _write_frame(writer: asyncio.StreamWriter, body: bytes) -> None:
    writer.write(struct.pack(">i", len(body)) + body)
    await writer.drain()
