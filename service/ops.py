"""The operations port: ``/livez``, ``/readyz``, ``/metrics``. First to open, last to close, never in an Ingress.

Belongs here: answering probes from what others know. Liveness is local (named loops turn; that this answers at all
shows that the event loop does); a dependency never fails it. Does not belong here: what a check looks at.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Protocol

import orjson
from aiohttp import web

from service.inbound import Bounds, listening

CHECK_SECONDS = 2.0
BOUNDS = Bounds(connections=100, closing=2.0)

Check = Callable[[], Awaitable[bool]]


class Metrics(Protocol):
    """What exposes the metrics."""

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """The exposition and its content type."""


class Loops(Protocol):
    """What knows which loops turn."""

    def list_silent(self) -> Mapping[str, float]:
        """Loops over their bound, with the seconds since their last beat."""


class Ending(Protocol):
    """What knows whether the process is asked to stop."""

    def is_set(self) -> bool:
        """True from the first signal on."""


class OpsApp:
    """The three handlers. What a probe finds out is a log line when it is not what the last one found."""

    def __init__(
        self,
        metrics: Metrics,
        loops: Loops,
        stop: Ending,
        checks: Mapping[str, Check],
        seconds: float = CHECK_SECONDS,
        *,
        warn: Callable[..., object] = lambda *_, **__: None,
    ) -> None:
        """``checks`` are what readiness needs, by name; each has ``seconds``, and an exception counts as False."""
        self._metrics = metrics
        self._loops = loops
        self._stop = stop
        self._checks = checks
        self._seconds = seconds
        self._warn = warn
        self._silent: set[str] = set()
        self._failing: set[str] | None = None  # not known before it was ready once

    def build(self) -> web.Application:
        """The application with its routes."""
        app = web.Application()
        app.add_routes(
            [web.get("/livez", self.livez), web.get("/readyz", self.readyz), web.get("/metrics", self.metrics)]
        )
        return app

    async def livez(self, _: web.Request) -> web.Response:
        """``{"live": true, "silent": {}}``; 503 with the loops that are silent and since how many seconds."""
        silent = {name: round(age, 1) for name, age in self._loops.list_silent().items()}
        if silent.keys() != self._silent:
            self._silent = set(silent)
            self._warn("loops_silent", silent=silent)
        return _answer(not silent, {"live": not silent, "silent": silent})

    async def readyz(self, _: web.Request) -> web.Response:
        """``{"ready": true, "stopping": false, "checks": {"database": true}}``; 503 when stopping or one is false."""
        stopping = self._stop.is_set()
        asked = dict(self._checks)  # roles that open meanwhile add theirs
        results = await asyncio.gather(*(self._passes(check) for check in asked.values()))
        checks = dict(zip(asked, results, strict=True))
        ready = not stopping and all(results)
        if not stopping:
            self._tell_readiness({name for name, well in checks.items() if not well})
        return _answer(ready, {"ready": ready, "stopping": stopping, "checks": checks})

    def _tell_readiness(self, failing: set[str]) -> None:
        if self._failing is None:
            self._failing = None if failing else set()
        elif failing != self._failing:
            self._failing = failing
            self._warn("readiness_changed", failing=sorted(failing))

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text, or OpenMetrics when the scraper asks for it."""
        accept = ",".join(request.headers.getall("accept", []))
        body, content_type = await asyncio.to_thread(self._metrics.render, accept)
        return web.Response(body=body, headers={"content-type": content_type})

    async def _passes(self, check: Check) -> bool:
        try:
            async with asyncio.timeout(self._seconds):
                return await check()
        except Exception:  # noqa: BLE001 - whatever the dependency threw, it is not ready
            return False


@asynccontextmanager
async def serve_ops(app: OpsApp, host: str, port: int, bounds: Bounds = BOUNDS) -> AsyncIterator[int]:
    """Answer on ``host``:``port`` inside; yields the port, which is a free one for 0.

    Raises:
        OSError: the address is taken or not ours.
    """
    async with listening(app.build(), "ops", host, port, bounds) as bound:
        yield bound


def _answer(well: bool, body: Mapping[str, Any]) -> web.Response:  # noqa: FBT001 - the one thing that decides the status
    return web.Response(status=200 if well else 503, body=orjson.dumps(body), content_type="application/json")
