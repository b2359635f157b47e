"""The advisory lock of the upkeep leader, on a connection of its own.

Belongs here: taking, proving and losing the lock. Does not belong here: what a leader does (``upkeep``).
"""

from __future__ import annotations

from typing import Any, Final

from service.ports import StoreUnavailable
from service.store.database import Address, translated
from service.store.listening import connect
from service.store.statements import statement

LEADER_LOCK: Final = (0x7765_6268, 1)  # "webh"
SILENCE_MS: Final = "4000"  # the server ends a leader's session that says nothing for so long: frozen, or cut off


class LeaderLock:
    """``LeadLock`` on PostgreSQL: held as long as the connection lives, and its holder says so every second."""

    def __init__(self, dsn: Address) -> None:
        self._dsn = dsn
        self._connection: Any = None

    async def acquire(self) -> bool:
        """Take the lock if it is free. Raises StoreUnavailable."""
        if self._connection is None:
            self._connection = await connect(
                self._dsn,
                "webhookd leader",
                idle_session_timeout=SILENCE_MS,
                tcp_keepalives_idle="2",
                tcp_keepalives_interval="1",
                tcp_keepalives_count="2",
            )
        held: bool = await self._ask("leader_try", *LEADER_LOCK)
        return held

    async def prove(self) -> None:
        """Say that the holder is alive. Raises StoreUnavailable when the lock is lost."""
        await self._ask("connection_prove")

    def release(self) -> None:
        """Let the lock go, with the connection."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _ask(self, name: str, *args: object) -> Any:
        try:
            with translated():
                return await self._connection.fetchval(statement(name), *args)
        except StoreUnavailable:
            self.release()
            raise
