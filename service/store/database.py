"""The door to PostgreSQL: one pool, transactions, and what counts as "the database is away".

Belongs here: connecting, statement look-up, translation of connection trouble into StoreUnavailable.
Does not belong here: any statement's meaning.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, Final, Self

import asyncpg

from service.lifecycle import beat
from service.ports import Conflict, StoreUnavailable
from service.store.statements import statement

Row = Mapping[str, Any]
Address = str | Callable[[], str]  # a DSN, or what gives the one in force: passwords change while processes run

# Trouble that passes by itself: the server is away, starting, stopping, full, or chose us as a deadlock's victim.
AWAY = (
    OSError,
    asyncio.TimeoutError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.exceptions.OperatorInterventionError,
    asyncpg.exceptions.InsufficientResourcesError,
    asyncpg.exceptions.InvalidAuthorizationSpecificationError,
    asyncpg.exceptions.InvalidCatalogNameError,
    asyncpg.exceptions.ReadOnlySQLTransactionError,
    asyncpg.exceptions.PostgresSystemError,
)
AGAIN = (asyncpg.DeadlockDetectedError, asyncpg.SerializationError, asyncpg.exceptions.LockNotAvailableError)


# Every statement goes by an index, and is planned for what the tables hold when it is called. A plan that is cached while
# a queue is empty takes any index for as good as any other, or a scan of the table, and is kept when the queue fills: four
# processes then needed minutes for what takes seconds. What planning costs, groups of rows share. Lists are read in the
# order of their index, up to a limit: a bitmap of all that match, and a sort, look cheap to who has no statistics of a
# partition yet.
PLANNING = {"enable_seqscan": "off", "enable_bitmapscan": "off", "jit": "off", "plan_cache_mode": "force_custom_plan"}
ACQUIRE_TIMEOUT: Final = 10.0  # seconds


async def _keep_state(_: Any) -> None:
    """Give a connection back as it is: nobody here leaves state on one, and asking each time costs a round trip."""


@dataclass(frozen=True, slots=True)
class Session:
    """One connection, inside a transaction where ``Database.transaction`` gave it. Statements go by name.

    A statement that has ended is a beat of the loop that ran it: long work is not taken for a loop that hangs.
    """

    connection: Any  # asyncpg's pool proxy, which is no Connection to a type checker

    async def fetch(self, name: str, *args: object) -> list[Any]:
        """Run ``sql/<name>.sql`` and return its rows."""
        rows: list[Any] = await self.connection.fetch(statement(name), *args)
        beat()
        return rows

    async def find(self, name: str, *args: object) -> Any | None:
        """Run ``sql/<name>.sql`` and return its first row, or None."""
        row = await self.connection.fetchrow(statement(name), *args)
        beat()
        return row

    async def value(self, name: str, *args: object) -> Any:
        """Run ``sql/<name>.sql`` and return the first column of its first row."""
        value = await self.connection.fetchval(statement(name), *args)
        beat()
        return value

    async def execute(self, name: str, *args: object) -> None:
        """Run ``sql/<name>.sql``."""
        await self.connection.execute(statement(name), *args)
        beat()

    async def write(self, name: str, *args: object) -> int:
        """Run ``sql/<name>.sql`` and return how many rows it has written at last, by its command tag."""
        tag: str = await self.connection.execute(statement(name), *args)
        beat()
        return int(tag.rpartition(" ")[2])


def current(dsn: Address) -> str:
    """The DSN in force."""
    return dsn if isinstance(dsn, str) else dsn()


class Database:
    """A pool of connections. Open it with ``async with``; every method may raise StoreUnavailable."""

    def __init__(self, dsn: Address, *, size: int = 10, command_timeout: float = 30.0, name: str = "webhookd") -> None:
        self._dsn = dsn
        self._size = size
        self._command_timeout = command_timeout
        self._name = name
        self._pool: asyncpg.Pool[Any] | None = None

    async def __aenter__(self) -> Self:
        """Build the pool without connecting: a database that is away at the start is an outage like any other."""
        self._pool = asyncpg.create_pool(
            connect=self._connect,
            min_size=0,
            max_size=self._size,
            command_timeout=self._command_timeout,
            timeout=5.0,
            server_settings={"application_name": self._name, "timezone": "UTC", **PLANNING},
            reset=_keep_state,
        )
        with translated():
            await self._pool
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the pool; connections that do not end within two seconds are cut."""
        assert self._pool is not None
        try:
            await asyncio.wait_for(self._pool.close(), 2.0)
        except (TimeoutError, *AWAY):
            self._pool.terminate()

    async def _connect(self, _: None, **options: Any) -> Any:
        return await asyncpg.connect(current(self._dsn), **options)

    async def renew(self) -> None:
        """Replace each connection when it is next lent: they were made with an address that holds no longer."""
        await self.pool.expire_connections()

    @property
    def pool(self) -> asyncpg.Pool[Any]:
        """The pool itself. Raises StoreUnavailable before the first ``async with``."""
        if self._pool is None:
            msg = "the database is not open"
            raise StoreUnavailable(msg)
        return self._pool

    @property
    def size(self) -> int:
        """How many connections are open."""
        return 0 if self._pool is None else int(self._pool.get_size())

    @property
    def in_use(self) -> int:
        """How many of them are lent."""
        return 0 if self._pool is None else int(self._pool.get_size() - self._pool.get_idle_size())

    async def answers(self) -> bool:
        """Tell whether the database answers."""
        try:
            async with self.session() as session:
                return bool(await session.value("transaction_now"))
        except StoreUnavailable:
            return False

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Session]:
        """Lend a connection outside any transaction: each statement commits by itself."""
        with translated():
            async with self.pool.acquire(timeout=ACQUIRE_TIMEOUT) as connection:
                with _asking(connection):
                    yield Session(connection)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Session]:
        """Lend a connection inside a READ COMMITTED transaction, committed on a clean exit.

        Raises Conflict when the server chose this transaction as the victim of a deadlock.
        """
        with translated():
            async with self.pool.acquire(timeout=ACQUIRE_TIMEOUT) as connection:
                with _asking(connection):
                    async with connection.transaction():
                        yield Session(connection)


@contextmanager
def _asking(connection: Any) -> Iterator[None]:
    """What asyncpg refuses though the connection lives (a number of arguments, say) is a mistake of ours: RuntimeError.

    It raises the same InterfaceError for a connection that has ended, which is trouble like any other, and perhaps while a
    canceled statement still ends.
    """
    asked = _count_cancellations()
    try:
        yield
    except asyncpg.InterfaceError as error:
        mistake = not (_has_ended(connection) or _count_cancellations() > asked)
        if mistake and not isinstance(error, ValueError):  # a value that no column takes keeps its DataError
            raise RuntimeError(str(error)) from error
        raise


def _has_ended(connection: Any) -> bool:
    try:
        return bool(connection.is_closed())
    except asyncpg.InterfaceError:  # the pool has taken it back
        return True


class translated:  # noqa: N801 - reads as a verb where it is used
    """Context manager: asyncpg's many connection errors become StoreUnavailable, deadlocks become Conflict.

    Either becomes the CancelledError that it replaced when the task was canceled meanwhile: the rollback of a canceled
    transaction fails too when the database is away, and who waits for the task's end would wait for ever.
    """

    def __enter__(self) -> None:
        """Note how often the task was asked to end before: cleaning up after that has trouble of its own."""
        self._asked = _count_cancellations()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        """Translate; everything else passes through."""
        trouble = _find_trouble(error)
        if trouble is None:
            return
        if _count_cancellations() > self._asked:
            raise asyncio.CancelledError from error
        if trouble is not error:
            raise trouble from error


def _find_trouble(error: BaseException | None) -> StoreUnavailable | Conflict | None:
    if isinstance(error, (StoreUnavailable, Conflict)):
        return error
    if isinstance(error, AGAIN):
        return Conflict(type(error).__name__)
    if isinstance(error, AWAY) and not isinstance(error, ValueError):  # asyncpg's DataError is an InterfaceError
        return StoreUnavailable(type(error).__name__)
    return None


def _count_cancellations() -> int:
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
