"""What is held, or waits behind an open breaker, and should not any more.

Belongs here: the net under enabling, undecryptable webhooks that open again, and what has waited for too long. Does not
belong here: pausing and enabling themselves (the API).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from service.ports import Tell

AT_ONCE: Final = 1_000
UNDECRYPTABLE: Final = "undecryptable"


@dataclass(frozen=True, slots=True)
class Ended:
    """A delivery that has ended without an attempt, as its log line tells it."""

    delivery_id: int
    message_id: str
    webhook_id: str
    tenant_id: str
    batch: str | None
    job_id: str | None
    attempts: int
    state: str
    reason: str | None

    def describe(self) -> dict[str, object]:
        """The fields of the line."""
        about = {"batch": self.batch, "job_id": self.job_id}
        return {
            "delivery_id": f"dlv_{self.delivery_id}",
            "message_id": self.message_id,
            "webhook_id": self.webhook_id,
            "tenant_id": self.tenant_id,
            **{name: value for name, value in about.items() if value is not None},
            "attempts": self.attempts,
            "state": self.state,
            "reason": self.reason,
        }


class HoldStore(Protocol):
    """Held deliveries. Every method may raise StoreUnavailable or Conflict."""

    async def release_free(self, limit: int) -> int:
        """Let go what is held though its reason is gone; return how many."""

    async def list_held_for(self, reason: str) -> list[int]:
        """Keys of the webhooks with deliveries that are held for this reason."""

    async def release_of(self, webhook_keys: Collection[int], reason: str) -> int:
        """Let go what these webhooks hold for this reason; return how many."""

    async def age_out(self, limit: int) -> list[Ended]:
        """End what was held for too long; return what ended, each once among all processes."""

    async def expire(self, limit: int) -> list[Ended]:
        """End what waits behind an open breaker for longer than its schedule; return what ended, likewise."""


class ReadableWebhooks(Protocol):
    """Opens sealed columns. May raise StoreUnavailable."""

    async def list_readable(self, webhook_keys: Collection[int]) -> list[int]:
        """Those of these webhooks whose sealed columns open."""


class Finished(Protocol):
    """Counts what has ended."""

    def deliveries_finished(self, state: str, count: int = 1) -> None:
        """Deliveries have left the queue."""


class Release:
    """Rounds over held and waiting deliveries. ``on_due`` is called when deliveries became due."""

    def __init__(
        self,
        store: HoldStore,
        webhooks: ReadableWebhooks,
        finished: Finished,
        tell: Tell,
        on_due: Callable[[], object] = lambda: None,
    ) -> None:
        self._store = store
        self._webhooks = webhooks
        self._finished = finished
        self._tell = tell
        self._on_due = on_due

    async def run_once(self) -> None:
        """Let go what is free, end what has waited for too long; every few seconds."""
        if await self._store.release_free(AT_ONCE):
            self._on_due()
        self._tell_ended(await self._store.age_out(AT_ONCE))
        self._tell_ended(await self._store.expire(AT_ONCE))

    def _tell_ended(self, ended: Sequence[Ended]) -> None:
        for each in ended:
            self._finished.deliveries_finished(each.state)
            self._tell("delivery_ended", **each.describe())

    async def retry_undecryptable(self) -> None:
        """Let deliveries go whose webhook opens again; every minute."""
        held = await self._store.list_held_for(UNDECRYPTABLE)
        readable = await self._webhooks.list_readable(held) if held else []
        if readable and await self._store.release_of(readable, UNDECRYPTABLE):
            self._on_due()
