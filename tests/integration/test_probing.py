"""The question that every role asks: who is away, refuses writes, or is back is a line of the log, once."""

import pytest

from service.app.probing import AgreedClock, ClockSkewProbe
from service.lifecycle import SystemClock
from service.store.database import Database
from tests.support.postgres import connected
from tests.support.postgres_server import HarmedPostgres

pytestmark = pytest.mark.timeout(120)


async def test_a_database_that_is_away_or_takes_no_writes_is_told_once_and_so_is_its_return(tmp_path_factory):
    told: list[tuple[str, str | None]] = []
    skews: list[float] = []
    data = tmp_path_factory.mktemp("postgres")
    async with HarmedPostgres(data) as server, Database(server.dsn) as database:
        probe = ClockSkewProbe(
            AgreedClock(SystemClock()), database, skews.append,
            lambda event, **fields: told.append((event, fields.get("reason"))),
        )  # fmt: skip

        async def look_twice() -> None:
            for _ in range(2):
                await probe.look()

        await look_twice()
        assert (told, len(skews)) == ([], 2)
        await refuse_writes(database, server.dsn, "on")
        await look_twice()
        await refuse_writes(database, server.dsn, "off")
        await look_twice()
        assert told == [("database_unavailable", "read_only"), ("database_back", None)]
        await server.stop()
        await look_twice()
        assert [event for event, _ in told[2:]] == ["database_unavailable"]
        assert told[2][1]
        await server.start()
        await look_twice()
        assert [event for event, _ in told[3:]] == ["database_back"]


async def refuse_writes(database: Database, dsn: str, setting: str) -> None:
    """As after a failover to a server that still replays: it answers, and every write is refused."""
    async with connected(dsn) as connection:
        await connection.execute("SET default_transaction_read_only = off")
        await connection.execute(f"ALTER DATABASE postgres SET default_transaction_read_only = {setting}")
    await database.renew()
