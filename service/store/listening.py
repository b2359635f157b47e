"""Notifications: hearing them, and sending them after a commit, on connections of their own.

Belongs here: LISTEN and NOTIFY, and the advisory lock by which live deliver processes are counted. Does not belong
here: what a notification leads to (``delivery.engine``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

import asyncpg

from service.lifecycle import beat, wait_at_most
from service.ports import StoreUnavailable
from service.store.database import Address, current, translated
from service.store.statements import statement

PROCESS_LOCK: Final = (0x7765_6268, 2)  # "webh": held shared by every live deliver process
PROBE_EVERY: Final = 5.0  # seconds
CONNECT_TIMEOUT: Final = 5.0  # seconds, for each statement too


async def connect(dsn: Address, name: str, **settings: str) -> Any:
    """Open a connection that no pool lends. Raises StoreUnavailable."""
    options = {"application_name": name, "timezone": "UTC", **settings}
    with translated():
        return await asyncpg.connect(
            current(dsn), timeout=CONNECT_TIMEOUT, command_timeout=CONNECT_TIMEOUT, server_settings=options
        )


class NotificationListener:
    """Hears notifications. ``dsn`` must lead to the server itself, past any transaction pooler."""

    def __init__(self, dsn: Address) -> None:
        self._dsn = dsn

    async def listen(self, handlers: Mapping[str, Callable[[], object]]) -> None:
        """Call the handler of a channel at each notification, until the connection ends: StoreUnavailable.

        Each handler is called once at the start: something may have been missed before.
        """
        connection = await connect(self._dsn, "webhookd listen")
        try:
            with translated():
                await self._listen(connection, handlers)
        finally:
            connection.terminate()

    async def _listen(self, connection: Any, handlers: Mapping[str, Callable[[], object]]) -> None:
        ended = asyncio.Event()
        connection.add_termination_listener(lambda _: ended.set())
        await connection.execute(statement("processes_join"), *PROCESS_LOCK)
        for channel, handler in handlers.items():
            await connection.add_listener(channel, _calling(handler))
            handler()
        while not ended.is_set():
            beat()
            await wait_at_most(ended, PROBE_EVERY)
            await connection.execute(statement("connection_prove"))  # a connection that died silently shows when asked
        raise StoreUnavailable("the listening connection has ended")


class DueNotifier:
    """Sends ``webhookd_due`` on a connection of its own, opened when it is first needed and again after trouble."""

    def __init__(self, dsn: Address) -> None:
        self._dsn = dsn
        self._connection: Any = None

    async def notify_due(self) -> None:
        """Tell every deliver process that a delivery without a lease is due. Raises StoreUnavailable."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._dsn, "webhookd notify")
        try:
            with translated():
                await self._connection.execute(statement("deliveries_wake"))
        except StoreUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Let the connection go."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None


def _calling(handler: Callable[[], object]) -> Callable[..., None]:
    def heard(*_: object) -> None:
        handler()

    return heard
