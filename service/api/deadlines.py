"""An answer in time, whatever the database does: one that hangs keeps a statement for half a minute, and its end as long.

Belongs here: giving up on a call. Does not belong here: for how long each may take (``parts.ApiLimits``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from service.ports import StoreUnavailable

T = TypeVar("T")


class Deadlines:
    """Runs calls, each in a task of its own that may end after its answer has gone out."""

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[Any]] = set()

    async def keep(self, work: Coroutine[Any, Any, T], seconds: float) -> T:
        """What ``work`` returns or raises; StoreUnavailable if it takes longer: then it is canceled, and not waited for."""
        task = asyncio.create_task(work)  # noqa: TID251 - it may outlive the call; ``_ending`` owns it then
        try:
            await asyncio.wait([task], timeout=seconds)
        except asyncio.CancelledError:
            task.cancel()
            raise
        if task.done():
            return task.result()
        task.cancel()
        self._ending.add(task)
        task.add_done_callback(self._forget)
        raise StoreUnavailable("no answer in time")

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._ending.discard(task)
        if not task.cancelled():
            task.exception()  # seen: it was told as an outage
