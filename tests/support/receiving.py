"""A receiver as its owner might run one: a real HTTP server that remembers what came, byte for byte, and answers as told.

Belongs here: answering, remembering, verifying with the published libraries. Does not belong here: what a test expects.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import orjson
import standardwebhooks
import svix.webhooks
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from tests.support.ports import find_free_port

PATIENCE = 60.0  # seconds until a condition counts as missed

LIBRARIES = (standardwebhooks.Webhook, svix.webhooks.Webhook)


@dataclass(frozen=True, slots=True)
class Answer:
    """What the receiver says to one request, after `delay` seconds."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0


class Drop:
    """The request is read and its connection reset, with no answer."""


class Held:
    """The request is read and gets no answer until `release` says which."""

    def __init__(self) -> None:
        self._answer: Answer | Drop | None = None
        self._released = asyncio.Event()

    def release(self, answer: Script = 200) -> None:
        self._answer = as_answer(answer)
        self._released.set()

    async def wait(self) -> Answer | Drop:
        await self._released.wait()
        assert self._answer is not None
        return self._answer


Script = int | Answer | Drop
DROP = Drop()


def as_answer(script: Script) -> Answer | Drop:
    return Answer(script) if isinstance(script, int) else script


@dataclass(slots=True)
class Arrival:
    """One POST as it came in, and what it was answered (None: nothing yet, or nothing at all)."""

    method: str
    path: str
    headers: CIMultiDictProxy[str]
    body: bytes
    at: float  # loop time
    received_at: float  # seconds since 1970
    answered: int | None = None
    answered_at: float | None = None  # loop time

    @property
    def message_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def timestamp(self) -> int:
        return int(self.headers["webhook-timestamp"])

    @property
    def signatures(self) -> list[str]:
        return self.headers["webhook-signature"].split(" ")

    @property
    def attempt(self) -> int:
        return int(self.headers["webhook-attempt"])

    @property
    def document(self) -> dict[str, Any]:
        return orjson.loads(self.body)

    @property
    def type(self) -> str:
        return self.document["type"]

    @property
    def data(self) -> dict[str, Any]:
        return self.document["data"]

    @property
    def job_ids(self) -> list[str]:
        return sorted(job["job_id"] for job in self.data["jobs"])

    @property
    def accepted(self) -> bool:
        return self.answered is not None and 200 <= self.answered < 300

    def verify(self, secret: str) -> Self:
        """Raise unless every published library accepts the raw bytes."""
        for library in LIBRARIES:
            library(secret).verify(self.body, dict(self.headers))
        return self

    def verifies(self, secret: str) -> bool:
        """Whether the published libraries, which have to agree, accept it."""
        verdicts = {_accepts(library, secret, self) for library in LIBRARIES}
        assert len(verdicts) == 1, "the libraries do not agree"
        return verdicts.pop()

    def __str__(self) -> str:
        hints = " ".join(f"{name}={self.headers.get(f'webhook-{name}')}" for name in ("id", "attempt", "generation"))
        return f"{self.method} {self.path} {hints} -> {self.answered} {self.body[:200].decode(errors='replace')}"


def _accepts(library: type, secret: str, arrival: Arrival) -> bool:
    try:
        library(secret).verify(arrival.body, dict(arrival.headers))
    except standardwebhooks.WebhookVerificationError:
        return False
    return True


class Receiver:
    """Listens on a loopback port while it is open; closed and opened again it keeps its address.

    Answers come from `script`, one a request, and are `otherwise` when that is used up.
    """

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.script: deque[Script | Held] = deque()
        self.otherwise: Script = 200
        self._place = f"/hooks/{secrets.token_hex(6)}"  # ports are used again, and others may still retry to this one
        self._port = find_free_port()  # nobody else's while it is closed
        self._runner: web.ServerRunner | None = None
        self._arrived = asyncio.Condition()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def open(self) -> None:
        """Listen, on the same port each time."""
        server = web.Server(self._receive, access_log=None)
        self._runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port, reuse_address=True).start()

    async def close(self) -> None:
        """Go down: nobody listens, connections are cut."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}{self._place}"

    @property
    def accepted(self) -> list[Arrival]:
        return [arrival for arrival in self.arrivals if arrival.accepted]

    @property
    def message_ids(self) -> set[str]:
        return {arrival.message_id for arrival in self.arrivals}

    def answer(self, *script: Script | Held) -> None:
        """Say what the next requests are answered, one each."""
        self.script.extend(script)

    def hold(self) -> Held:
        """Leave the next request without an answer until the result is released."""
        held = Held()
        self.answer(held)
        return held

    async def wait_for(self, condition: int | Callable[[], object], within: float = PATIENCE) -> list[Arrival]:
        """Wait until so many requests were received, or until `condition` holds.

        It is asked whenever one arrives or is answered.
        """
        reached = condition if callable(condition) else lambda: len(self.arrivals) >= condition
        async with self._arrived:
            try:
                await asyncio.wait_for(self._arrived.wait_for(lambda: bool(reached())), within)
            except TimeoutError:
                raise AssertionError(f"not within {within:g} s; {self}") from None
        return self.arrivals

    def __str__(self) -> str:
        lines = "\n".join(f"  {arrival}" for arrival in self.arrivals[-20:])
        return f"the receiver got {len(self.arrivals)} requests\n{lines}"

    async def _receive(self, request: web.BaseRequest) -> web.Response:
        if request.path != self._place:
            return web.Response(status=404)
        body = await request.read()
        now = asyncio.get_running_loop().time()
        headers = CIMultiDictProxy(CIMultiDict(request.headers))
        arrival = Arrival(request.method, request.path_qs, headers, body, now, time.time())
        script = self.script.popleft() if self.script else self.otherwise
        await self._tell(arrival, None)
        answer = await script.wait() if isinstance(script, Held) else as_answer(script)
        return await self._respond(request, arrival, answer)

    async def _respond(self, request: web.BaseRequest, arrival: Arrival, answer: Answer | Drop) -> web.Response:
        if isinstance(answer, Drop):
            if request.transport is not None:
                request.transport.abort()
            return web.Response()
        if answer.delay:
            await asyncio.sleep(answer.delay)
        await self._tell(arrival, answer.status)
        return web.Response(status=answer.status, headers=answer.headers, body=answer.body)

    async def _tell(self, arrival: Arrival, answered: int | None) -> None:
        async with self._arrived:
            if answered is None:
                self.arrivals.append(arrival)
            arrival.answered = answered
            arrival.answered_at = None if answered is None else asyncio.get_running_loop().time()
            self._arrived.notify_all()
