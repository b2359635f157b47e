"""The queue's store with an eye and a hand on it, for tests of the engine.

Belongs here: counting calls, failing them and holding back their answers. What they do is the database's, always.
"""

import asyncio
from collections import Counter
from typing import Any

from service.ports import StoreUnavailable


class Watched:
    """Hands every call on to ``store``, unless it is ``away`` or the call is one it ``lacks``. ``calls`` counts by name.

    With ``late`` a claim that brings something is committed a while before its answer comes: ``claimed`` tells that it
    was, ``answer`` lets it come.
    """

    def __init__(self, store: Any, *, late: bool = False, lacks: str = "") -> None:
        self._store = store
        self._lacks = lacks
        self.calls: Counter[str] = Counter()
        self.away = False
        self.claimed, self.answer = asyncio.Event(), asyncio.Event()
        if not late:
            self.answer.set()

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            self.calls[name] += 1
            if self.away or name == self._lacks:
                raise StoreUnavailable("test")
            found = await getattr(self._store, name)(*arguments)
            if name == "claim" and found.rows:
                self.claimed.set()
                await self.answer.wait()
            return found

        return call
