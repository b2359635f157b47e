"""Clearing how a webhook fared, after an enable or with another receiver.

Belongs here: the API's writes to ``webhook_health``. Does not belong here: what outcomes write there (``health``).
"""

from __future__ import annotations

from datetime import datetime

from service.domain.health import build_health
from service.store.codes import BreakerCode
from service.store.database import Session
from service.store.health import dump_health


async def clear_health(session: Session, webhook_key: int, now: datetime, *, trial: bool, other_receiver: bool) -> None:
    """Start over: with ``trial`` one attempt goes first, alone; ``other_receiver`` forgets successes and errors too."""
    health = build_health(now, trial=trial)
    breaker = int(BreakerCode[health.breaker.name])
    await session.execute("webhook_clear_health", webhook_key, dump_health(health), breaker, other_receiver)


async def clear_hold(session: Session, webhook_key: int) -> None:
    """End the rest that the receiver asked for."""
    await session.execute("webhook_clear_hold", webhook_key)
