"""Operator pauses: claims leave out a tenant, a host, or everything, until the pause ends.

Belongs here: writing and listing pauses. Does not belong here: obeying them (``delivery.catalog``).
"""

from __future__ import annotations

from dataclasses import dataclass

from service.store.database import Row, Session


@dataclass(frozen=True, slots=True)
class PauseTarget:
    """What is paused: ``all``, one ``tenant`` or one ``host``, spelled as ``Target.host`` is."""

    scope: str
    tenant_id: str | None = None
    host: str | None = None

    @property
    def label(self) -> str:
        """Name it for the audit log."""
        return " ".join((self.scope, self.tenant_id or self.host or "")).strip()


async def list_pauses(session: Session) -> list[Row]:
    """Return all pauses, newest first, at most a thousand."""
    return await session.fetch("pause_list")


async def create_pause(session: Session, target: PauseTarget, reason: str | None, key_id: str) -> tuple[Row, bool]:
    """Return the pause and whether it is new."""
    row = await session.find("pause_insert", target.scope, target.tenant_id, target.host, reason, key_id)
    assert row is not None
    await session.execute("webhooks_notify")
    return row, bool(row["new"])


async def end_pause(session: Session, target: PauseTarget) -> Row | None:
    """End a pause; None when there is none."""
    row = await session.find("pause_end", target.scope, target.tenant_id, target.host)
    await session.execute("webhooks_notify")
    await session.execute("deliveries_wake")
    return row
