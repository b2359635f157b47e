"""The audit log: who changed what.

Belongs here: writing and reading entries. What an entry says is decided by the handler that makes the change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import orjson

from service.domain.messages import format_instant
from service.store.database import Row, Session


@dataclass(frozen=True, slots=True)
class Entry:
    """One write. ``before`` and ``after`` hold no secret; None where there was or is nothing."""

    at: datetime
    tenant_id: str | None
    key_id: str
    action: str
    target: str
    before: Mapping[str, Any] | None
    after: Mapping[str, Any] | None


def _plain(value: Any) -> str | None:
    return format_instant(value) if isinstance(value, datetime) else str(value)


def _json(value: Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()


async def write_entry(session: Session, entry: Entry) -> None:
    """Write an entry inside the transaction of the change itself."""
    values = (entry.at, entry.tenant_id, entry.key_id, entry.action, entry.target)
    await session.execute("audit_insert", *values, _json(entry.before), _json(entry.after))


async def list_entries(session: Session, before: int, tenant_id: str | None, limit: int) -> list[Row]:
    """Return entries, newest first, older than entry ``before``."""
    return await session.fetch("audit_list", before, tenant_id, limit)


async def prune_entries(session: Session, older_than: datetime) -> None:
    """Forget old entries, a bounded number at a time."""
    await session.execute("audit_prune", older_than)
