"""CPU per 1 KB POST over kept connections: the product's sender against aiohttp's client.

    python tests/bench/sender.py [--posts 20000] [--rounds 3]

The receiver is a small uvloop server in another process, so its CPU is not counted. Rounds are interleaved, the figure
of each is the median, aiohttp's is taken at its best number in flight. Prints one line per figure and the ratio.
"""

# ruff: noqa: T201  # it prints its figures
from __future__ import annotations

import argparse
import asyncio
import gc
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection

import aiohttp
import uvloop

from service.domain.egress import parse_policy
from service.domain.outbound import OutboundRequest, compile_headers
from service.domain.targets import Target, parse_url
from service.sender import HttpSender, build_tls_context
from service.sender.resolver import Found

ANSWER = (
    b"HTTP/1.1 204 No Content\r\nServer: bench\r\nDate: Mon, 30 Nov 2026 09:00:00 GMT\r\nConnection: keep-alive\r\n\r\n"
)
BODY = b'{"type":"extraction.completed","data":"' + b"x" * 983 + b'"}'
FIXED = (("content-type", "application/json"), ("user-agent", "webhookd/1"))
IN_FLIGHT = (16, 64, 256)
Post = Callable[[], Awaitable[object]]


class CheapReceiver(asyncio.Protocol):
    """Answers 204 for every body's end; reads no header."""

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        if data.endswith(b'"}'):
            self.transport.write(ANSWER)


def stay_awake(loop: asyncio.AbstractEventLoop) -> None:
    """Never wait in the kernel: on a virtual machine, waking the other core would cost the sender 50 us a POST."""
    loop.call_soon(stay_awake, loop)


def serve(pipe: Connection) -> None:
    async def run() -> None:
        loop = asyncio.get_running_loop()
        server = await loop.create_server(CheapReceiver, "127.0.0.1", 0)
        pipe.send(server.sockets[0].getsockname()[1])
        stay_awake(loop)
        await asyncio.Event().wait()

    uvloop.run(run())


def attempt_headers() -> list[tuple[str, str]]:
    return [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1795000000"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
        ("webhook-attempt", "1"),
        ("webhook-event-type", "extraction.completed"),
        ("webhook-generation", "1"),
    ]


def render(headers: list[tuple[str, str]]) -> bytes:
    """As delivery does it: its own headers need no check."""
    return "".join([f"{name}: {value}\r\n" for name, value in headers]).encode()


async def measure(post: Post, posts: int, in_flight: int) -> float:
    """Microseconds of this process's CPU per POST."""

    async def worker(count: int) -> None:
        for _ in range(count):
            await post()

    async def wave(total: int) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(worker(total // in_flight))

    await wave(max(in_flight * 4, 1000))
    before = time.process_time()
    await wave(posts)
    return (time.process_time() - before) / (posts // in_flight * in_flight) * 1e6


class NoLookup:
    async def __call__(self, name: str) -> Found:
        raise AssertionError(name)

    async def close(self) -> None:
        pass


async def measure_product(port: int, posts: int, in_flight: int) -> float:
    policy = parse_policy(allow_http=True, allow=f"127.0.0.1/32:{port}")
    target = parse_url(f"http://127.0.0.1:{port}/hooks/webhook", policy)
    assert isinstance(target, Target)
    fixed = compile_headers(FIXED)
    async with HttpSender(policy, NoLookup(), build_tls_context()) as sender:

        async def post() -> None:
            route = sender.find_route(target, "tenant") or await sender.locate(target, "tenant", time.monotonic() + 5)
            request = OutboundRequest(target, fixed + render(attempt_headers()), BODY, "tenant", route=route)
            outcome = await sender.send(request, time.monotonic() + 15)
            assert outcome.delivered

        return await measure(post, posts, in_flight)


async def measure_aiohttp(port: int, posts: int, in_flight: int) -> float:
    url = f"http://127.0.0.1:{port}/hooks/webhook"
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=15, sock_connect=5)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
    ) as session:

        async def post() -> None:
            headers = [*FIXED, *attempt_headers(), ("accept-encoding", "identity")]
            async with session.post(url, data=BODY, headers=headers, allow_redirects=False) as response:
                assert response.status == 204
                await response.read()

        return await measure(post, posts, in_flight)


def compare(port: int, posts: int, rounds: int) -> None:
    candidates = {"product": measure_product, "aiohttp": measure_aiohttp}
    figures: dict[tuple[str, int], list[float]] = {}
    for _ in range(rounds):
        for in_flight in IN_FLIGHT:
            for name, run in candidates.items():
                figures.setdefault((name, in_flight), []).append(uvloop.run(run(port, posts, in_flight)))
    medians = {key: statistics.median(values) for key, values in figures.items()}
    for (name, in_flight), value in sorted(medians.items()):
        print(f"{name:8} {in_flight:4} in flight {value:7.1f} us per POST")
    best = {name: min(v for (n, _), v in medians.items() if n == name) for name in candidates}
    print(
        f"product {best['product']:.1f} us, aiohttp {best['aiohttp']:.1f} us, ratio {best['product'] / best['aiohttp']:.2f}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--posts", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    receiver = multiprocessing.get_context("spawn").Process(target=serve, args=(theirs,), daemon=True)
    receiver.start()
    port = ours.recv()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        compare(port, arguments.posts, arguments.rounds)
    finally:
        receiver.terminate()
        receiver.join()


if __name__ == "__main__":
    main()
