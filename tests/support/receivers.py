"""Receivers scripted byte by byte, for what no HTTP server would do.

A script is an async function that gets a ``Visit``, one for each connection. ``Visit.request()`` reads a whole request
and keeps it; ``Visit.say()`` sends bytes; ``Visit.reset()`` ends the connection with a RST.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
NO_CONTENT = b"HTTP/1.1 204 No Content\r\n\r\n"


@dataclass
class Request:
    """A request as it came."""

    head: bytes
    body: bytes

    @property
    def line(self) -> bytes:
        return self.head.split(b"\r\n", 1)[0]

    @property
    def headers(self) -> list[tuple[str, str]]:
        lines = self.head.decode("utf-8").split("\r\n")[1:]
        return [(name, value) for name, _, value in (line.partition(": ") for line in lines if line)]

    def get(self, name: str) -> str | None:
        return next((value for known, value in self.headers if known.lower() == name.lower()), None)


@dataclass
class Visit:
    """One connection to a receiver."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    number: int
    requests: list[Request]

    async def request(self) -> Request:
        """The next whole request; raises asyncio.IncompleteReadError at the end of the connection."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        request = Request(head[:-2], b"")
        request.body = await self.reader.readexactly(int(request.get("content-length") or 0))
        self.requests.append(request)
        return request

    async def say(self, *pieces: bytes, pause: float = 0.0) -> None:
        """Send each piece in a segment of its own, ``pause`` seconds apart."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            if pause:
                await asyncio.sleep(pause)

    def reset(self) -> None:
        """End the connection with a RST."""
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()

    async def wait_closed(self) -> None:
        """Until the other side has ended the connection."""
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


Script = Callable[[Visit], Awaitable[None]]


@dataclass
class Receiver:
    """A listening receiver. ``requests`` holds every request in order, ``visits`` counts connections."""

    host: str
    port: int
    requests: list[Request] = field(default_factory=list)
    visits: int = 0
    live: int = 0

    def url(self, path: str = "/hook", scheme: str = "http", host: str | None = None) -> str:
        return f"{scheme}://{host or self.host}:{self.port}{path}"


@contextlib.asynccontextmanager
async def receive(
    script: Script, *, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """Run a receiver on a free port; a script that fails fails the test."""
    receiver = Receiver(host, 0)
    tasks: set[asyncio.Task[None]] = set()
    problems: list[BaseException] = []

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        receiver.visits += 1
        receiver.live += 1
        tasks.add(asyncio.current_task())
        try:
            await script(Visit(reader, writer, receiver.visits, receiver.requests))
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        except BaseException as error:  # noqa: BLE001
            problems.append(error)
        finally:
            receiver.live -= 1
            writer.transport.abort() if tls else writer.close()

    server = await asyncio.start_server(visit, host, 0, ssl=tls, ssl_handshake_timeout=60 if tls else None)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)
    if problems:
        raise problems[0]


def answering(*pieces: bytes, pause: float = 0.0, then: str = "wait") -> Script:
    """Answer every request with these pieces, then ``wait`` for the next, ``close`` or ``reset``."""

    async def script(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.say(*pieces, pause=pause)
            if then == "reset":
                visit.reset()
            if then != "wait":
                return

    return script


def in_turn(*scripts: Script) -> Script:
    """The first connection follows the first script, and so on; the last one goes for all later ones."""

    async def script(visit: Visit) -> None:
        await scripts[min(visit.number, len(scripts)) - 1](visit)

    return script


async def silent(visit: Visit) -> None:
    """Read the request and never answer."""
    await visit.request()
    await visit.wait_closed()


def segments(data: bytes, size: int) -> Sequence[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]
