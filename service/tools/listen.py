"""``webhookd listen``: a local receiver for people who integrate: verifies, shows, and answers as it is told.

Belongs here: receiving, showing and misbehaving on request. Does not belong here: the judgement (``checking``), and the
receiver of the demo, which verifies as any receiver could (``demo_receiver``).
"""

from __future__ import annotations

import argparse
import asyncio
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import orjson
from aiohttp import web
from rich.console import Console
from rich.highlighter import JSONHighlighter
from rich.text import Text

from service.lifecycle import Clock, Stop, SystemClock, run_on_uvloop, stop_on_signals
from service.tools.checking import Verdict, check_request
from service.tools.guesses import ID, guess_key
from service.tools.terminal import escape, refuse

DEFAULT_PORT = 9000
ACCEPTED, REFUSED = 204, 401
MAX_BODY_BYTES = 16 << 20
MAX_DELAY = 3600.0
_REMEMBERED = 10_000  # ids, to tell repeats
_SHOWN_LINES = 400
_SHOWN_CHARACTERS = 4_000  # of a line
_STATUSES = range(200, 1000)
_PORTS = range(65_536)
_HINT = (
    "The service reaches it only if it is let: WEBHOOKD_ALLOW_HTTP=true, WEBHOOKD_EGRESS_ALLOW=127.0.0.1/32:* and "
    "WEBHOOKD_EGRESS_PORTS=*. Ctrl-C ends it."
)


@dataclass(frozen=True, slots=True)
class Manners:
    """How to answer. ``statuses`` are given one a request, the last one from then on; none: 204, or 401 if not valid."""

    statuses: tuple[int, ...] = ()
    delay: float = 0.0
    drop: bool = False

    def choose(self, number: int, *, valid: bool) -> int:
        """Return the status for request ``number``, counted from 0."""
        if self.statuses:
            return self.statuses[min(number, len(self.statuses) - 1)]
        return ACCEPTED if valid else REFUSED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=parse_port, default=DEFAULT_PORT, help="0: any that is free (default: %(default)s)"
    )
    parser.add_argument(
        "--secret", action="append", required=True, help="whsec_… (or whpk_… for v1a); several: any of them may fit"
    )
    parser.add_argument(
        "--status",
        type=parse_statuses,
        default=(),
        metavar="N[,N…]",
        help="answer these in turn, the last from then on (default: 204, or 401 to what does not verify)",
    )
    parser.add_argument("--delay", type=parse_delay, default=0.0, metavar="SECONDS", help="wait before answering")
    parser.add_argument("--drop", action="store_true", help="read the request, then cut the connection")


def run(arguments: argparse.Namespace) -> int:
    """Run the command until Ctrl-C: 0 ended, 1 the port is not to be had, 2 arguments unusable."""
    for secret in arguments.secret:
        if problem := guess_key(secret).problem:
            refuse(f"--secret: {problem}")
            return 2
    manners = Manners(arguments.status, arguments.delay, arguments.drop)
    listener = Listener(arguments.secret, manners, SystemClock(), Console(highlight=False))
    try:
        return run_on_uvloop(_listen(listener, arguments.host, arguments.port))
    except OSError as error:
        refuse(f"cannot listen on {arguments.host}:{arguments.port}: {error}")
        return 1
    except KeyboardInterrupt:
        return 0


def parse_port(text: str) -> int:
    """Read a port. Raises ValueError."""
    port = int(text)
    if port not in _PORTS:
        raise ValueError("a port is between 0 and 65535")
    return port


def parse_statuses(text: str) -> tuple[int, ...]:
    """Read ``503,200``. Raises ValueError."""
    statuses = tuple(int(one) for one in text.split(","))
    if not all(status in _STATUSES for status in statuses):
        raise ValueError("a status is between 200 and 999")
    return statuses


def parse_delay(text: str) -> float:
    """Read seconds. Raises ValueError."""
    seconds = float(text)
    if not 0 <= seconds <= MAX_DELAY:
        raise ValueError(f"a delay is between 0 and {MAX_DELAY:.0f} seconds")
    return seconds


async def _listen(listener: Listener, host: str, port: int) -> int:
    stop = Stop(SystemClock(), timedelta())
    runner = web.AppRunner(listener.build(), access_log=None, shutdown_timeout=0.5)
    with stop_on_signals(stop):
        await runner.setup()
        try:
            await web.TCPSite(runner, host, port).start()
            for address in runner.addresses:
                listener.say(f"Listening on http://{_authority(address)}/ (any path). {_HINT}")
            await stop.wait()
        finally:
            await runner.cleanup()
    return 0


def _authority(address: tuple[str, int]) -> str:
    host, port = address[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass(slots=True)
class Listener:
    """Receives on any path, in any method."""

    secrets: list[str] = field(repr=False)
    manners: Manners
    clock: Clock
    console: Console
    received: int = 0
    _seen: OrderedDict[str, int] = field(default_factory=OrderedDict)

    def build(self) -> web.Application:
        """Build the web application."""
        application = web.Application(client_max_size=MAX_BODY_BYTES)
        application.router.add_route("*", "/{path:.*}", self.receive)
        return application

    async def receive(self, request: web.Request) -> web.Response:
        """Verify the raw bytes, show, answer as told."""
        body = await request.read()
        headers = list(request.headers.items())
        verdict = check_request(headers, body, self.secrets, int(self.clock.now().timestamp()))
        status = self.manners.choose(self.received, valid=verdict.valid)
        self.received += 1
        answer = "dropped" if self.manners.drop else f"answered {status}"
        self._show(request, body, verdict, answer)
        if self.manners.delay:
            await asyncio.sleep(self.manners.delay)
        if self.manners.drop and request.transport is not None:
            request.transport.abort()
        return web.Response(status=status)

    def say(self, text: str, style: str = "") -> None:
        """Print a line as it is: no markup, no control characters, not wrapped."""
        self.console.print(Text(escape(text), style=style), soft_wrap=True)

    def _show(self, request: web.Request, body: bytes, verdict: Verdict, answer: str) -> None:
        now = self.clock.now()
        self.say("")
        self.say(f"{now:%H:%M:%S} {request.method} {request.path_qs}  {len(body)} bytes, {answer}", "bold")
        for name in (ID, "webhook-timestamp", "webhook-attempt", "webhook-event-type", "webhook-generation"):
            if name in request.headers:
                self.say(f"  {name}: {request.headers[name]}{self._repeat(name, request.headers[name])}")
        self.say(
            "  signature: valid" if verdict.valid else "  signature: NOT VALID", "green" if verdict.valid else "red"
        )
        for finding in verdict.wrong:
            self.say(f"    {finding.part}: {finding.text}", "red")
        self._show_body(body)

    def _repeat(self, name: str, value: str) -> str:
        """Say that an id was here before; remembers it."""
        if name != ID:
            return ""
        times = self._seen.pop(value, 0)
        self._seen[value] = times + 1
        while len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)
        return f" (seen {times} times before: a retry, or sent again)" if times else ""

    def _show_body(self, body: bytes) -> None:
        lines = pretty(body)
        for line in lines[:_SHOWN_LINES]:
            more = " …" if len(line) > _SHOWN_CHARACTERS else ""
            self.console.print(JSONHighlighter()(Text(f"  {line[:_SHOWN_CHARACTERS]}{more}")), soft_wrap=True)
        if len(lines) > _SHOWN_LINES:
            self.say(f"  … {len(lines) - _SHOWN_LINES} lines more")


def pretty(body: bytes) -> list[str]:
    """The body as lines for a terminal, indented if it is JSON, control characters escaped."""
    with suppress(orjson.JSONDecodeError, orjson.JSONEncodeError):
        body = orjson.dumps(orjson.loads(body), option=orjson.OPT_INDENT_2)
    return [escape(line) for line in body.decode("utf-8", "backslashreplace").split("\n")]
