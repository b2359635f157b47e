"""Hostile bytes at both ports: an answer or an end, never a 500, never a traceback, never without a bound."""

import asyncio
import gc
import io
import json
import os
import socket
import ssl
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from service.inbound import Bounds
from service.lifecycle import Heartbeats, Stop, SystemClock
from service.logs import Redactor, configure
from service.ops import OpsApp, serve_ops
from service.telemetry import Telemetry
from tests.support.api import OPERATOR_KEY, running_api

BOUNDS = Bounds(connections=50, seconds=0.5, lingering=0.2)
KEY = b"authorization: Bearer " + OPERATOR_KEY.encode() + b"\r\nx-tenant-id: t1\r\n"
JSON = b"content-type: application/json\r\n"
PUT = b"PUT /v1/batches/b/webhook HTTP/1.1\r\nhost: x\r\n" + KEY + JSON
CHUNKED = PUT + b"transfer-encoding: chunked\r\n\r\n"


def client_hello() -> bytes:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="x.example").do_handshake()
    return outgoing.read()


GET = b"GET /livez HTTP/1.1\r\n"
BYTES = {
    "nothing": b"",
    "nul": b"\0" * 5000,
    "random": os.urandom(20_000),
    "every-byte": bytes(range(256)) * 20,
    "lines": b"\r\n" * 5000,
    "tls": client_hello(),
    "ssh": b"SSH-2.0-OpenSSH_9.6\r\n",
    "smtp": b"EHLO x\r\nMAIL FROM:<a@b>\r\n",
    "redis": b"*1\r\n$4\r\nPING\r\n",
    "http2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\x04\0\0\0\0\0",
    "http09": b"GET /\r\n\r\n",
    "http3": b"GET / HTTP/3.7\r\n\r\n",
    "no-host": b"GET /v1/batches HTTP/1.1\r\n\r\n",
    "two-hosts": GET + b"host: a\r\nhost: b\r\n\r\n",
    "long-path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    "long-method": b"A" * 100_000 + b" / HTTP/1.1\r\n\r\n",
    "long-header": GET + b"x: " + b"a" * 100_000 + b"\r\n\r\n",
    "long-name": GET + b"x" * 100_000 + b": a\r\n\r\n",
    "many-headers": GET + b"".join(b"x%d: a\r\n" % n for n in range(10_000)) + b"\r\n",
    "folded": GET + b"x: a\r\n b\r\n\r\n",
    "space-before-colon": GET + b"host : x\r\n\r\n",
    "no-colon": GET + b"nonsense\r\n\r\n",
    "nul-in-header": GET + b"host: x\0y\r\n\r\n",
    "bare-cr": GET + b"host: x\ry: z\r\n\r\n",
    "bare-lf": b"GET /livez HTTP/1.1\nhost: x\n\n",
    "utf8": b"GET /\xff\xfe\xc3\x28 HTTP/1.1\r\nhost: \xff\r\nx-\xff: \xff\r\n\r\n",
    "surrogate": b"GET /\xed\xa0\x80?q=\xed\xa0\x80 HTTP/1.1\r\nhost: x\r\nauthorization: Bearer \xed\xa0\x80\r\n\r\n",
    "percent": b"GET /v1/batches/%%%zz/%00%ff%2e%2e HTTP/1.1\r\nhost: x\r\n" + KEY + b"\r\n",
    "absolute-nonsense": b"GET http://[::1]:99999999/ HTTP/1.1\r\nhost: x\r\n\r\n",
    "absolute-userinfo": b"GET http://u:p@[zz]/ HTTP/1.1\r\nhost: x\r\n\r\n",
    "scheme-only": b"GET http: HTTP/1.1\r\nhost: x\r\n\r\n",
    "no-slash": b"GET v1 HTTP/1.1\r\nhost: x\r\n\r\n",
    "connect": b"CONNECT 169.254.169.254:80 HTTP/1.1\r\nhost: x\r\n\r\n",
    "connect-nonsense": b"CONNECT :::: HTTP/1.1\r\nhost: x\r\n\r\n" + b"\xff" * 100_000,
    "star": b"OPTIONS * HTTP/1.1\r\nhost: x\r\n\r\n",
    "expect": PUT + b"expect: the-spanish-inquisition\r\ncontent-length: 2\r\n\r\n{}",
    "expect-continue-no-body": PUT + b"expect: 100-continue\r\ncontent-length: 100\r\n\r\n",
    "upgrade": GET + b"host: x\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-key: x\r\n\r\n\xff\xfe" * 3,
    "upgrade-then-garbage": GET + b"host: x\r\nconnection: upgrade\r\nupgrade: h2c\r\n\r\n" + b"\xff" * 200_000,
    "length-negative": PUT + b"content-length: -1\r\n\r\n",
    "length-plus": PUT + b"content-length: +2\r\n\r\n{}",
    "length-hex": PUT + b"content-length: 0x2\r\n\r\n{}",
    "length-twice": PUT + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}x",
    "length-huge": PUT + b"content-length: 99999999999999999999999\r\n\r\n{}",
    "length-digits": PUT + b"content-length: " + b"9" * 8000 + b"\r\n\r\n{}",
    "length-superscript": PUT + "content-length: ²\r\n\r\n".encode() + b"{}",
    "length-and-chunked": PUT + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    "smuggled": PUT + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\nGET /v1/keys HTTP/1.1\r\n\r\n",
    "smuggled-tab": PUT + b"transfer-encoding:\x0bchunked\r\n\r\n0\r\n\r\n",
    "chunk-size": CHUNKED + b"zz\r\n{}\r\n0\r\n\r\n",
    "chunk-negative": CHUNKED + b"-1\r\n{}\r\n0\r\n\r\n",
    "chunk-huge": CHUNKED + b"fffffffffffffffff\r\n{}",
    "chunk-no-crlf": CHUNKED + b"2\r\n{}xx0\r\n\r\n",
    "chunk-extension": CHUNKED + b"2;" + b"a" * 100_000 + b"\r\n{}\r\n0\r\n\r\n",
    "chunk-trailer": CHUNKED + b"2\r\n{}\r\n0\r\n" + b"x: a\r\n" * 50_000 + b"\r\n",
    "chunk-bad-after-good-key-missing": b"PUT /v1/x HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
    "gzip-bomb-claimed": PUT + b"content-encoding: gzip\r\ncontent-length: 4\r\n\r\n\x1f\x8b\x08\x00",
    "deep-arrays": PUT + b"content-length: 200000\r\n\r\n" + b"[" * 200_000,
    "deep-objects": PUT + b"content-length: 200000\r\n\r\n" + b'{"a":' * 40_000,
    "body-utf8": PUT + b'content-length: 9\r\n\r\n{"a":"\xff"}',
    "body-utf16": PUT + b"content-length: 6\r\n\r\n" + "{}".encode("utf-16"),
    "pipelined": GET + b"host: x\r\n\r\n" + (GET + b"host: x\r\n\r\n") * 300,
    "pipelined-garbage": GET + b"host: x\r\n\r\n" + b"\xff\xfe\x00",
    "authorization-huge": GET + b"authorization: Basic " + b"/" * 8000 + b"\r\n\r\n",
    "cookie": GET + b"host: x\r\ncookie: " + b"a=b; " * 1500 + b"\r\n\r\n",
    "accept": b"GET /metrics HTTP/1.1\r\nhost: x\r\naccept: \xff;q=\xfe,,,;;==\r\n\r\n",
    "key-nul": b"GET /v1/batches HTTP/1.1\r\nhost: x\r\nauthorization: Basic AAAA\r\nx-tenant-id: \xff\r\n\r\n",
}  # fmt: skip


class Log:
    def __init__(self) -> None:
        self.stream = io.StringIO()

    @property
    def events(self) -> list[dict]:
        return [orjson.loads(line) for line in self.stream.getvalue().splitlines()]


@pytest.fixture
def log():
    gc.collect()  # what others left must not be told here
    found = Log()
    undo = configure(
        now=lambda: datetime.now(UTC), redactor=Redactor([OPERATOR_KEY]), stream=found.stream, level="debug"
    )
    yield found
    undo()


@pytest.fixture(params=["api", "ops"])
async def port(request, database, monkeypatch):
    monkeypatch.setattr("service.api.reading.read_body.__defaults__", (0.5,))
    async with opened_api(database, BOUNDS) if request.param == "api" else opened_ops(BOUNDS) as port:
        yield port


@asynccontextmanager
async def opened_api(database, bounds):
    async with running_api(database, bounds=bounds) as api:
        yield int(api.base.rpartition(":")[2])


@asynccontextmanager
async def opened_ops(bounds):
    clock = SystemClock()
    telemetry = Telemetry(request_timeout=timedelta(seconds=15), retry_schedule=[timedelta(seconds=5)])
    app = OpsApp(telemetry, Heartbeats(clock), Stop(clock, timedelta(0)), {})
    async with serve_ops(app, "127.0.0.1", 0, bounds) as bound:
        yield bound


async def throw(port: int, data: bytes) -> bytes:
    """Send, and what comes back until the other side ends the connection, which it has to."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def send():
        try:
            writer.write(data)
            await writer.drain()
        except ConnectionError:
            return

    async def receive():
        answer = b""
        try:
            while piece := await reader.read(65_536):
                answer += piece
        except ConnectionError:
            pass
        return answer

    async with asyncio.timeout(60):
        _, answer = await asyncio.gather(send(), receive())
    writer.transport.abort()
    return answer


async def throw_in_time(port: int, data: bytes) -> bytes:
    """The same for what gets an answer; a connection that was too late with its head, on a busy machine, gets none."""
    async with asyncio.timeout(60):
        while not (answer := await throw(port, data)):
            await asyncio.sleep(0.01)
    return answer


def statuses(answer: bytes) -> list[int]:
    return [int(line[9:12]) for line in answer.split(b"\r\n") if line.startswith(b"HTTP/1.")]


async def test_any_bytes_get_an_answer_below_500_or_an_end(port, log):
    answers = {}
    names = list(BYTES)
    for at in range(0, len(names), 10):
        some = names[at : at + 10]
        answers |= zip(some, await asyncio.gather(*(throw(port, BYTES[name]) for name in some)), strict=True)
    bad = {name: answer[:300] for name, answer in answers.items() if any(s >= 500 for s in statuses(answer))}
    assert not bad
    quoted = {name: answer for name, answer in answers.items() if b"aiohttp" in answer or b"Traceback" in answer}
    assert not quoted
    assert [event for event in log.events if event["event"] != "malformed_request"] == []
    assert statuses(await throw_in_time(port, GET + b"host: x\r\nconnection: close\r\n\r\n")) in ([200], [404])


async def test_bytes_that_are_no_http_get_a_problem_that_does_not_quote_them(port, log):
    answer = await throw_in_time(port, GET + b"authorization: Bearer secret-of-someone\r\nbroken header\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 400 ", b"HTTP/1.0 400 "))
    assert b"application/problem+json" in head
    assert json.loads(body)["code"] == "malformed_request"
    assert b"secret-of-someone" not in answer
    assert "secret-of-someone" not in log.stream.getvalue()
    (event,) = log.events
    assert event["event"] == "malformed_request"
    assert event["remote"] == "127.0.0.1"
    assert set(event) == {"at", "level", "event", "port", "untold", "remote", "problem"}


async def test_an_answer_is_the_same_in_all_forms_of_http(database):
    async with running_api(database) as api:
        port = int(api.base.rpartition(":")[2])
        end = b" HTTP/1.1\r\nhost: x\r\nconnection: close\r\n" + KEY
        absolute = await throw_in_time(port, b"GET HTTP://webhookd.example:80/v1/batches?limit=1" + end + b"\r\n")
        assert absolute.startswith(b"HTTP/1.1 200 ") and absolute.endswith(b'{"data":[],"next_cursor":null}')
        body = b"content-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
        awaited = await throw_in_time(port, b"POST /v1/events" + end + b"expect: 100-Continue\r\n" + body)
        assert awaited.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 ")
        refused = await throw_in_time(port, b"POST /v1/events" + end + b"expect: secret\r\n" + body)
        head, _, content = refused.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 417 ") and b"application/problem+json" in head
        assert json.loads(content)["code"] == "expectation_failed" and b"secret" not in refused


async def test_a_thousand_bad_connections_are_a_line_or_two(port, log):
    began = asyncio.get_running_loop().time()
    for _ in range(25):
        await asyncio.gather(*(throw(port, b"\xff\r\n\r\n") for _ in range(40)))
    took = asyncio.get_running_loop().time() - began
    lines = log.stream.getvalue().count("malformed_request")
    assert 1 <= lines <= 2 + took  # at most one a second


@pytest.mark.parametrize(
    "start",
    [b"", b"GET /", GET, GET + b"host: x\r\nx-slow: ", b"\r\n"],
    ids=["silent", "line", "head", "header", "empty"],
)
async def test_a_head_that_does_not_come_ends_the_connection(port, log, start):
    async def drip(writer):
        while True:
            writer.write(b"a" if start not in (b"", b"\r\n") else start)
            await writer.drain()
            await asyncio.sleep(0.05)

    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(start)
    dripping = asyncio.get_running_loop().create_task(drip(writer))
    async with asyncio.timeout(60):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    dripping.cancel()
    await asyncio.gather(dripping, return_exceptions=True)
    writer.transport.abort()
    assert log.events == []


async def test_a_body_that_drips_ends_in_408(database, monkeypatch):
    monkeypatch.setattr("service.api.reading.read_body.__defaults__", (0.3,))
    async with running_api(database, bounds=BOUNDS) as api:
        answer = await throw_in_time(
            int(api.base.rpartition(":")[2]), PUT + b"connection: close\r\ncontent-length: 100\r\n\r\n{"
        )
    assert statuses(answer) == [408]
    assert b"body_too_slow" in answer


@pytest.mark.parametrize(
    "endless",
    [b"a" * 65_536, b"x: y\r\n" * 10_000, b"\r\n" * 30_000],
    ids=["header", "headers", "lines"],
)
async def test_an_endless_head_is_not_read_on(port, endless):
    _reader, writer = await asyncio.open_connection("127.0.0.1", port)
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
    writer.write(GET + b"x-1: ")
    sent = 0
    try:
        async with asyncio.timeout(60):
            while sent < 1 << 30:
                writer.write(endless)
                await writer.drain()
                sent += len(endless)
    except ConnectionError:
        pass
    writer.transport.abort()
    assert sent < 100 << 20  # what the kernel holds, and what comes until the answer is seen


async def test_connections_above_the_limit_are_refused_and_the_others_live(log):
    async with opened_ops(Bounds(connections=5, seconds=30)) as port:
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(5)]
        for _, writer in kept:
            writer.write(GET + b"host: x\r\n\r\n")
        for reader, _ in kept:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        assert await throw(port, GET + b"host: x\r\n\r\n") == b""
        kept[0][1].transport.abort()
        answer = await throw_in_time(port, GET + b"host: x\r\nconnection: close\r\n\r\n")
        assert statuses(answer) == [200]
        for _, writer in kept:
            writer.transport.abort()
    assert {event["event"] for event in log.events} == {"connection_refused"}


async def test_an_own_fault_on_a_port_is_logged_with_its_traceback(log, monkeypatch):
    async def broken(*_):
        raise ZeroDivisionError("boom")

    monkeypatch.setattr(OpsApp, "livez", broken)
    async with opened_ops(BOUNDS) as port:
        answer = await throw_in_time(port, GET + b"host: x\r\n\r\n")
    assert statuses(answer) == [500]
    assert b"boom" not in answer
    (event,) = log.events
    assert (event["event"], event["where"], event["error"]) == ("internal_error", "ops", "ZeroDivisionError")
    assert "Traceback" in event["exception"]
