"""A PostgreSQL of one test's own, with means to break it: restart, freeze, cut, fill, move."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Self
from urllib.parse import parse_qs, urlsplit

from service.tools.embedded import embedded_postgres
from tests.support.postgres import connected
from tests.support.stopping import wait_until_still

CUT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"


class HarmedPostgres:
    """A durable server whose name for clients stays the same; where it listens is another directory after each start.

    The name is a link, which a client follows at each connect, as it looks a host name up.
    """

    def __init__(self, data: Path) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="webhookd-link-", dir="/tmp"))
        self.directory.chmod(0o755)
        self._link = self.directory / "socket"
        self.dsn = f"postgresql://postgres@/postgres?host={self._link}"
        self._data = data
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        await self.stop()
        shutil.rmtree(self.directory)

    async def start(self) -> None:
        dsn = await self._stack.enter_async_context(embedded_postgres(self._data))
        self._link.unlink(missing_ok=True)
        self._link.symlink_to(parse_qs(urlsplit(dsn).query)["host"][0])

    async def stop(self) -> None:
        await self._stack.aclose()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def move(self, data: Path) -> None:
        """Go on at another place with another directory; the old one is gone."""
        await self.stop()
        shutil.copytree(self._data, data)
        for path in [data, *data.rglob("*")]:
            owner = (self._data / path.relative_to(data)).stat()
            os.chown(path, owner.st_uid, owner.st_gid)
        shutil.rmtree(self._data)
        self._data = data
        await self.start()

    async def cut(self) -> None:
        """End every client's connection in the middle of what it does."""
        async with connected(self.dsn) as connection:
            await connection.execute(CUT)

    def freeze(self) -> None:
        """Connections stay open and nothing answers, as with a storage that hangs."""
        if postmaster := self._find_postmaster():
            os.kill(postmaster, signal.SIGSTOP)
            wait_until_still(postmaster)  # from here on it starts nobody
            self._signal(signal.SIGSTOP)
            for pid in list_children(postmaster):
                wait_until_still(pid)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    @property
    def running(self) -> bool:
        return self._find_postmaster() is not None

    def _find_postmaster(self) -> int | None:
        file = self._data / "postgres" / "postmaster.pid"
        pid = int(file.read_text().split("\n", 1)[0]) if file.exists() else 0
        return pid if pid and Path(f"/proc/{pid}").exists() else None

    def _signal(self, number: signal.Signals) -> None:
        if postmaster := self._find_postmaster():
            for pid in (postmaster, *list_children(postmaster)):
                with suppress(ProcessLookupError):  # a backend that has ended meanwhile
                    os.kill(pid, number)


def list_children(parent: int) -> list[int]:
    children = Path(f"/proc/{parent}/task/{parent}/children").read_text()
    return [int(pid) for pid in children.split()]
