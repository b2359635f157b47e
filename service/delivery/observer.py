"""What delivery counts, as calls that the composition root answers."""

from __future__ import annotations

from typing import Protocol

from service.domain.attempts import Outcome


class Observer(Protocol):
    """The metrics of chapter 6 that delivery feeds; ``service.telemetry`` has them."""

    def attempt(
        self,
        outcome: Outcome,
        *,
        slot_wait: float | None = None,
        first_delay: float | None = None,
        latency: float | None = None,
    ) -> None:
        """One attempt has ended; times in seconds."""

    def deliveries_finished(self, state: str, count: int = 1) -> None:
        """Deliveries have left the queue."""

    def deliveries_claimed(self, count: int) -> None:
        """Deliveries were leased to this process."""

    def webhooks_disabled(self, count: int = 1) -> None:
        """Webhooks were disabled."""

    def own_fault(self, kind: str) -> None:
        """An attempt was not made for a fault of our own."""
