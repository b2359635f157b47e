"""Secrets in files that change while the process runs: database, listener, leader and egress proxy follow."""

import asyncio
import base64
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest

from service.app.basics import build_common_workers, open_basics
from service.config import SecretReload, load_configuration
from service.domain.attempts import OwnFault
from service.ports import StoreUnavailable
from service.sender.proxy import follow_proxy
from service.store.leadership import LeaderLock
from service.store.listening import DueNotifier, NotificationListener
from tests.support.postgres import connected
from tests.support.receivers import OK, Visit, answering, receive
from tests.support.senders import loopback_policy, open_client

KEY = "k1:" + base64.b64encode(bytes(range(32))).decode()
FIRST, SECOND = "first-password-1f", "second-password-2e"


@pytest.fixture
async def strict_postgres(database):
    """DSN of a superuser; the server asks the role `rotating` for its password, and nobody else for theirs."""
    async with connected(database) as connection:
        rules = Path(await connection.fetchval("SHOW hba_file"))
        before = rules.read_text()
        rules.write_text(f"local all rotating scram-sha-256\n{before}")
        await connection.execute(f"CREATE ROLE rotating LOGIN SUPERUSER PASSWORD '{FIRST}'")
        await connection.execute("SELECT pg_reload_conf()")
        await wait_until_asked(database)
        yield database
        await connection.execute("DROP ROLE rotating")
        rules.write_text(before)


async def wait_until_asked(dsn: str) -> None:
    """The server reads its rules again in its own time."""
    async with asyncio.timeout(60):
        while True:
            try:
                connection = await asyncpg.connect(as_role(dsn, "wrong"))
            except asyncpg.InvalidPasswordError:
                return
            await connection.close()


def as_role(dsn: str, password: str) -> str:
    parts = urlsplit(dsn)
    return parts._replace(netloc=f"rotating:{password}@{parts.netloc.rpartition('@')[2]}").geturl()


@asynccontextmanager
async def opened(file: Path):
    """What every role uses, wired as the service wires it, and the look at the files that it takes every 10 s."""
    environ = {
        "WEBHOOKD_DATABASE_URL_FILE": str(file),
        "WEBHOOKD_ENCRYPTION_KEYS": KEY,
        "WEBHOOKD_OPERATOR_KEY": "operator-key-of-the-tests",
    }
    async with AsyncExitStack() as stack:
        basics = await open_basics(stack, await asyncio.to_thread(load_configuration, environ))
        (reload,) = (each for each in build_common_workers(basics) if isinstance(each, SecretReload))
        yield basics, reload.look


async def ask(database) -> int:
    """The server process that answered."""
    async with database.session() as session:
        return await session.connection.fetchval("SELECT pg_backend_pid()")


async def test_connections_follow_a_password_that_changes_in_its_file(strict_postgres, tmp_path, capfd):
    file = tmp_path / "dsn"
    file.write_text(as_role(strict_postgres, FIRST))
    async with opened(file) as (basics, look):
        before = await ask(basics.database)
        async with connected(strict_postgres) as superuser:
            await superuser.execute(f"ALTER ROLE rotating PASSWORD '{SECOND}'")
            assert await ask(basics.database) == before  # what is connected stays so
            await superuser.execute("SELECT pg_terminate_backend($1, 60000)", before)
        with pytest.raises(StoreUnavailable):
            await ask(basics.database)
        await look()
        with pytest.raises(StoreUnavailable):
            await ask(basics.database)

        file.write_text(as_role(strict_postgres, SECOND) + "\n")
        await look()
        assert await ask(basics.database) != before
        await everybody_connects(basics)
        basics.log.error("trouble", reason=f"says {SECOND} and {FIRST}")
    said = capfd.readouterr().err
    assert '"event":"secret_changed","setting":"database_url"' in said
    assert "trouble" in said
    assert SECOND not in said
    assert FIRST not in said


async def everybody_connects(basics) -> None:
    """Who has a connection of its own."""
    lock, notifier = LeaderLock(basics.configuration.listen_url), DueNotifier(basics.configuration.listen_url)
    assert await lock.acquire()
    lock.release()
    heard = asyncio.Event()
    listener = NotificationListener(basics.configuration.listen_url)
    listening = asyncio.get_running_loop().create_task(listener.listen({"webhookd_due": heard.set}))
    async with asyncio.timeout(60):
        await heard.wait()
    heard.clear()
    await notifier.notify_due()
    async with asyncio.timeout(60):
        await heard.wait()
    listening.cancel()
    await asyncio.gather(listening, return_exceptions=True)
    notifier.close()


async def test_pooled_connections_are_replaced_when_the_address_changes(strict_postgres, tmp_path):
    """Two servers, or two roles, are never used at once for longer than a transaction."""
    file = tmp_path / "dsn"
    file.write_text(as_role(strict_postgres, FIRST))
    async with opened(file) as (basics, look):
        before = await ask(basics.database)
        file.write_text(strict_postgres)
        await look()
        assert await ask(basics.database) != before
        async with basics.database.session() as session:
            assert await session.connection.fetchval("SELECT current_user") == urlsplit(strict_postgres).username


async def test_a_file_that_holds_nonsense_changes_nothing(strict_postgres, tmp_path, capfd):
    file = tmp_path / "dsn"
    file.write_text(as_role(strict_postgres, FIRST))
    async with opened(file) as (basics, look):
        before = await ask(basics.database)
        file.write_text(f"mysql://u:{SECOND}@host/name")
        await look()
        assert await ask(basics.database) == before
    said = capfd.readouterr().err
    assert '"event":"secret_unusable","setting":"database_url"' in said
    assert SECOND not in said


async def test_a_start_while_the_password_is_wrong_waits_for_the_file(strict_postgres, tmp_path):
    file = tmp_path / "dsn"
    file.write_text(as_role(strict_postgres, SECOND))
    async with opened(file) as (basics, look):
        with pytest.raises(StoreUnavailable):
            await ask(basics.database)
        file.write_text(as_role(strict_postgres, FIRST))
        await look()
        assert await ask(basics.database)


async def proxying(visit: Visit) -> None:
    await visit.request()
    await visit.say(b"HTTP/1.1 200 Connected\r\n\r\n")
    await answering(OK)(visit)


async def test_each_dial_goes_through_the_proxy_that_the_file_names_now():
    policy = loopback_policy(allow=" 127.0.0.0/8")
    async with receive(proxying) as old, receive(proxying) as new:
        url = [f"http://u:{FIRST}@127.0.0.1:{old.port}"]
        async with open_client(proxy=follow_proxy(lambda: url[0]), policy=policy) as client:
            assert (await client.post("http://127.0.0.1:9/")).delivered
            url[0] = f"http://u:{SECOND}@127.0.0.1:{new.port}"
            assert (await client.post("http://127.0.0.2:9/")).delivered
            url[0] = "http://127.0.0.1:9"
            with pytest.raises(OwnFault):
                await client.post("http://127.0.0.3:9/")
    assert [r.get("proxy-authorization") for r in old.requests[:1]] == [basic(FIRST)]
    assert [r.get("proxy-authorization") for r in new.requests[:1]] == [basic(SECOND)]


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"u:{password}".encode()).decode()
