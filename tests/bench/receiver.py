"""A receiver that says when each POST came: for latencies, which nginx's log gives to the millisecond only.

    python -m tests.bench.receiver [--tls certificate.pem key.pem]

Prints its port. A body names its run and the monotonic instant at which it was produced, ``at-<run>-<ns>-…``; the
answer is 204, or nothing for a body that holds ``"hang"``. ``GET /<run>`` gives the run's latencies in ns, ``GET /``
the number of bodies that hang.
"""

# ruff: noqa: T201  # it prints its port
from __future__ import annotations

import argparse
import asyncio
import re
import ssl
import time
from collections import defaultdict

import orjson

from service.lifecycle import raise_descriptor_limit, run_on_uvloop, tune_gc

ADDRESSES = ("127.0.0.1", "127.0.0.2")
ANSWER = (
    b"HTTP/1.1 204 No Content\r\nServer: bench\r\nDate: Mon, 30 Nov 2026 09:00:00 GMT\r\nConnection: keep-alive\r\n\r\n"
)
HANG = b'"hang"'
MARK = re.compile(rb"at-(\w+)-(\d+)-")
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Arrivals:
    """What came."""

    def __init__(self) -> None:
        self.latencies: defaultdict[bytes, list[int]] = defaultdict(list)
        self.hanging = 0

    def take(self, body: bytes) -> bool:
        """Note a body; whether it gets an answer."""
        now = time.monotonic_ns()
        if HANG in body:
            self.hanging += 1
            return False
        if mark := MARK.search(body):
            self.latencies[mark[1]].append(now - int(mark[2]))
        return True

    def show(self, run: bytes) -> bytes:
        """The answer to a question."""
        document = orjson.dumps(self.latencies[run] if run else self.hanging)
        return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(document), document)


class Connection(asyncio.Protocol):
    """One connection, kept alive."""

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._buffer = b""

    def connection_made(self, transport):
        self._transport = transport

    def data_received(self, data):
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            length = LENGTH.search(self._buffer, 0, end)
            whole = end + 4 + (int(length[1]) if length else 0)
            if len(self._buffer) < whole:
                return
            head, body, self._buffer = self._buffer[:end], self._buffer[end + 4 : whole], self._buffer[whole:]
            self._answer(head, body)

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"GET /"):
            self._transport.write(self._arrivals.show(head[5 : head.index(b" ", 5)]))
        elif self._arrivals.take(body):
            self._transport.write(ANSWER)


def build_tls(files: list[str] | None) -> ssl.SSLContext | None:
    if not files:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    return context


async def serve(tls: ssl.SSLContext | None) -> None:
    loop, arrivals = asyncio.get_running_loop(), Arrivals()
    first = await loop.create_server(lambda: Connection(arrivals), ADDRESSES[0], 0, ssl=tls, backlog=20_000)
    port = first.sockets[0].getsockname()[1]
    await loop.create_server(lambda: Connection(arrivals), ADDRESSES[1], port, ssl=tls, backlog=20_000)
    tune_gc()
    print(port, flush=True)
    await asyncio.Event().wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tls", nargs=2, metavar="FILE")
    arguments = parser.parse_args()
    raise_descriptor_limit()
    run_on_uvloop(serve(build_tls(arguments.tls)))


if __name__ == "__main__":
    main()
