"""Listening on the service's own ports, so that hostile bytes cost their connection and nothing else.

Belongs here: what holds before there is a request: bounds on time, size and number of connections, the answer to bytes
that are no HTTP, and the one quiet line about them. Does not belong here: what requests are answered with.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

TELL_EVERY = 1.0
SERVER = "webhookd"
_HOSTILE = (HttpProcessingError, web.RequestPayloadError, web.PayloadAccessError, ConnectionError)
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one port bears. ``seconds`` is how long a connection may take for a request's head, or say nothing between
    two, or not read its answer; longer than load balancers keep theirs (60 s is usual), so that they close first.
    """

    connections: int = 1000
    seconds: float = 75.0
    lingering: float = 5.0
    closing: float = 3.0


class Entrance:
    """One port: how many connections it has, and when it last wrote about one. ``name`` stands in its log lines."""

    def __init__(self, name: str, bounds: Bounds, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = name
        self.bounds = bounds
        self.connections = 0
        self._clock = clock
        self._told_at = -TELL_EVERY
        self._untold = 0

    @property
    def full(self) -> bool:
        return self.connections > self.bounds.connections

    def tell(self, event: str, **fields: object) -> None:
        """Write a line, at most one a second: whoever knocks does not fill the disk. ``untold`` counts the others."""
        now = self._clock()
        if now - self._told_at < TELL_EVERY:
            self._untold += 1
            return
        _log.info(event, port=self.name, untold=self._untold, **fields)
        self._told_at, self._untold = now, 0


class Visitor(web.RequestHandler):
    """One connection."""

    __slots__ = ("_entrance",)

    def __init__(self, entrance: Entrance, server: web.Server) -> None:
        options: dict[str, Any] = {
            "loop": asyncio.get_running_loop(),
            "keepalive_timeout": entrance.bounds.seconds,
            "lingering_time": entrance.bounds.lingering,
            "access_log": None,
            "auto_decompress": False,  # nobody here takes compressed bodies
        }
        super().__init__(server, **options)
        self._entrance = entrance

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let it in if there is room."""
        self._entrance.connections += 1
        if self._entrance.full:
            self._entrance.tell("connection_refused", limit=self._entrance.bounds.connections)
            assert isinstance(transport, asyncio.Transport)
            transport.abort()
            return
        _bound_silence(transport.get_extra_info("socket"), self._entrance.bounds.seconds)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count it out."""
        self._entrance.connections -= 1
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what never became a request, without its bytes; what is our own fault is logged as such."""
        del message  # it quotes the caller
        self.log_exception("", exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a part of the answer is out already")
        response = _render(status)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **fields: Any) -> None:
        """Tell what is wrong with the bytes in one word; a traceback only for what is wrong with us."""
        error = fields.get("exc_info")
        if isinstance(error, _HOSTILE):
            self._entrance.tell("malformed_request", remote=_remote(self.peername), problem=type(error).__name__)
        else:
            _log.error("internal_error", where=self._entrance.name, message=str(args[0]), exc_info=error)


class _Site(web.BaseSite):
    """A listening socket whose connections are visitors."""

    __slots__ = ("_build", "_where")

    def __init__(self, runner: web.AppRunner, entrance: Entrance, host: str, port: int) -> None:
        super().__init__(runner)
        server = runner.server
        assert server is not None
        self._build = lambda: Visitor(entrance, server)
        self._where = host, port

    @property
    def name(self) -> str:
        """The address as aiohttp shows it."""
        return f"http://{self._where[0]}:{self._where[1]}"

    async def start(self) -> None:
        """Listen."""
        await super().start()
        host, port = self._where
        self._server = await asyncio.get_running_loop().create_server(self._build, host, port, backlog=128)


@asynccontextmanager
async def listening(
    app: web.Application, name: str, host: str, port: int, bounds: Bounds | None = None
) -> AsyncIterator[int]:
    """Serve ``app`` on ``host``:``port`` inside; yields the port, which is a free one for 0.

    Raises:
        OSError: the address is taken or not ours.
    """
    bounds = bounds or Bounds()
    app.on_response_prepare.append(_sign)
    runner = web.AppRunner(app, handle_signals=False, shutdown_timeout=bounds.closing)
    await runner.setup()
    try:
        await _Site(runner, Entrance(name, bounds), host, port).start()
        yield int(runner.addresses[0][1])
    finally:
        await runner.cleanup()


async def _sign(_: web.Request, response: web.StreamResponse) -> None:
    response.headers["Server"] = SERVER  # and not with the versions of what it is made of


def _bound_silence(sock: Any, seconds: float) -> None:
    """Let the kernel end a connection whose peer does not take what we sent."""
    option = getattr(socket, "TCP_USER_TIMEOUT", None)  # Linux
    if option is not None and sock is not None:
        sock.setsockopt(socket.IPPROTO_TCP, option, round(seconds * 1000))


def _remote(peer: object) -> str:
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""


def _render(status: int) -> web.Response:
    phrase = HTTPStatus(status).phrase
    code = "malformed_request" if status < HTTPStatus.INTERNAL_SERVER_ERROR else "internal_error"
    problem = {"type": f"urn:webhookd:problem:{code}", "title": phrase, "status": status, "code": code}
    detail = "These bytes are not HTTP." if code == "malformed_request" else "Something went wrong here; it is logged."
    return web.Response(
        status=status,
        body=orjson.dumps({**problem, "detail": detail}),
        content_type="application/problem+json",
        headers={"Server": SERVER, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store"},
    )
