"""The service's own record of a message, asked of its admin API.

Belongs here: the calls, and reading their answers. Does not belong here: what the record shows (``traces``, ``checking``).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout

from service.tools.traces import Record

PATIENCE = ClientTimeout(total=30)
MANY = 50  # deliveries whose attempts are looked at


class RecordUnavailable(Exception):
    """The API cannot be asked; the message says why."""


async def fetch_record(api: str, key: str, tenant_id: str | None, message_id: str) -> Record:
    """Return what the service knows of a message. Raises RecordUnavailable."""
    headers = {"Authorization": f"Bearer {key}", **({"X-Tenant-ID": tenant_id} if tenant_id else {})}
    try:
        async with ClientSession(headers=headers, timeout=PATIENCE) as http:
            return await _Asking(http, api.rstrip("/")).fetch(message_id)
    except (ClientError, TimeoutError, ValueError) as error:
        raise RecordUnavailable(f"the API at {api} cannot be asked: {str(error) or type(error).__name__}") from None


class _Asking:
    def __init__(self, http: ClientSession, base: str) -> None:
        self._http = http
        self._base = base

    async def fetch(self, message_id: str) -> Record:
        message = await self._get(f"/v1/messages/{quote(message_id, safe='')}")
        if message is None:
            return Record(known=False)
        body = message["body"]
        return Record(True, None if body is None else body.encode(), await self._list_attempts(message))

    async def _list_attempts(self, message: Mapping[str, Any]) -> tuple[int, ...] | None:
        work = _name_work(message)
        if work is None:
            return None
        page = await self._get(f"/v1/deliveries?limit=200&{work}") or {"data": []}
        wanted = [d["delivery_id"] for d in page["data"] if d["message_id"] == message["message_id"]][:MANY]
        shown = [await self._get(f"/v1/deliveries/{delivery_id}") or {"attempts": []} for delivery_id in wanted]
        times = (attempt["started_at"] for delivery in shown for attempt in delivery["attempts"])
        found = tuple(int(datetime.fromisoformat(at).timestamp()) for at in times)
        return found or None

    async def _get(self, path: str) -> Any:
        """An answer as JSON, None for an object that does not exist. Raises RecordUnavailable for any other refusal."""
        async with self._http.get(self._base + path, allow_redirects=False) as reply:
            content = await reply.read()
        if reply.status == HTTPStatus.NOT_FOUND and b'"code":"not_found"' in content:
            return None
        if reply.status != HTTPStatus.OK:
            raise RecordUnavailable(f"the API at {self._base} answers {reply.status} to {path.partition('?')[0]}")
        return orjson.loads(content)


def _name_work(message: Mapping[str, Any]) -> str | None:
    """Return the filter that lists the deliveries about the same work; None for a message about none."""
    if message["scope"] == "job":
        return f"job={quote(message['job_id'], safe='')}"
    if message["scope"] != "batch" or message["body"] is None:
        return None
    return f"batch={quote(orjson.loads(message['body'])['data']['batch']['name'], safe='')}"
