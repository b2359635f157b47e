"""The demo's receiver: verifies with the published ``standardwebhooks`` library, as any receiver could.

Belongs here: answering and remembering. Does not belong here: what the demo expects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import orjson
from aiohttp import web
from standardwebhooks import Webhook, WebhookVerificationError

COLUMNS = ("webhook-id", "attempt", "generation", "jobs", "signature", "answer")


@dataclass(frozen=True, slots=True)
class Receipt:
    """One POST as it came in."""

    message_id: str
    attempt: str
    body: bytes
    verified: bool
    answered: int
    data: dict[str, Any]

    @property
    def generation(self) -> int:
        """The finish that the message tells of."""
        return int(self.data["batch"]["generation"])

    def cells(self) -> tuple[str, ...]:
        """Return the row of the demo's table, under ``COLUMNS``."""
        counts = self.data["counts"]
        return (
            f"{self.message_id[:12]}…",
            self.attempt,
            str(self.generation),
            f"{counts['succeeded']} ok, {counts['failed']} failed",
            "valid" if self.verified else "NOT VALID",
            str(self.answered),
        )


@dataclass(slots=True)
class SampleReceiver:
    """Listens on a free loopback port. Refuses the next ``refuse_next`` requests with 503."""

    url: str = ""
    secret: str = ""
    refuse_next: int = 0
    receipts: list[Receipt] = field(default_factory=list)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    @classmethod
    @asynccontextmanager
    async def listen(cls) -> AsyncIterator[Self]:
        """Run a receiver inside."""
        receiver = cls()
        application = web.Application()
        application.router.add_post("/hooks", receiver.receive)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            receiver.url = f"http://127.0.0.1:{runner.addresses[0][1]}/hooks"
            yield receiver
        finally:
            await runner.cleanup()

    async def receive(self, request: web.Request) -> web.Response:
        """Verify the raw bytes, answer, remember."""
        body = await request.read()
        answer = 503 if self.refuse_next else 200
        self.refuse_next = max(0, self.refuse_next - 1)
        async with self.arrived:
            self.receipts.append(self._receipt(request, body, answer))
            self.arrived.notify_all()
        return web.Response(status=answer)

    def _receipt(self, request: web.Request, body: bytes, answer: int) -> Receipt:
        return Receipt(
            request.headers["webhook-id"],
            request.headers["webhook-attempt"],
            body,
            self._verifies(dict(request.headers), body),
            answer,
            orjson.loads(body)["data"],
        )

    def _verifies(self, headers: dict[str, str], body: bytes) -> bool:
        try:
            Webhook(self.secret).verify(body, {name.lower(): value for name, value in headers.items()})
        except WebhookVerificationError:
            return False
        return True

    async def wait_for(self, *, accepted: int, seconds: float) -> None:
        """Wait until so many requests were accepted. Raises TimeoutError."""
        async with self.arrived:
            done = self.arrived.wait_for(lambda: sum(r.answered < 300 for r in self.receipts) >= accepted)  # noqa: PLR2004
            await asyncio.wait_for(done, seconds)
