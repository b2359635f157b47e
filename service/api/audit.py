"""The audit log: ``/v1/audit``."""

from __future__ import annotations

from typing import Any

import orjson

from service.api import answers
from service.api.calls import Answer, Call
from service.api.cursors import cut, read_number, write_number
from service.api.models import Page
from service.store import audit
from service.store.database import Row

_LIST = "audit"


def _json(text: str | None) -> dict[str, Any] | None:
    content: dict[str, Any] | None = None if text is None else orjson.loads(text)
    return content


def _show(row: Row) -> answers.AuditEntry:
    names = ("at", "tenant_id", "key_id", "action", "target")
    return answers.AuditEntry(
        audit_id=f"aud_{row['audit_id']}",
        **{name: row[name] for name in names},
        before=_json(row["before"]),
        after=_json(row["after"]),
    )


async def list_(call: Call) -> Answer:
    """List writes, newest first; of one tenant if ``X-Tenant-ID`` names one."""
    page = call.query(Page)
    before = read_number(_LIST, page.cursor)
    found = await audit.list_entries(call.session, before, call.caller.tenant_id, page.limit + 1)
    rows, more = cut(found, page.limit, lambda row: write_number(_LIST, row["audit_id"]))
    return Answer(200, answers.AuditList(data=[_show(row) for row in rows], next_cursor=more))
