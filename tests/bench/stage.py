"""What the figures are measured on: PostgreSQL, the broker, nginx, service processes and other children.

Belongs here: starting and ending these, and the sizes of a run. Does not belong here: what is measured.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from service.sealing import Sealer
from service.tools.embedded import LAUNCHER, embedded_broker, embedded_postgres
from tests.e2e.story import create_topic
from tests.support.ports import find_free_port
from tests.support.postgres import TEMPLATE, build_dsn, create_database, migrate
from tests.support.service import Service, build_settings

ROOT = Path(__file__).parents[2]
ADDRESS = "127.0.0.1"
PARTITIONS = 4
SEALER = Sealer([("test", bytes(range(32)))])
"""Of `tests.support.service.ENCRYPTION_KEYS`."""
TO_END = 10.0
NGINX_ABSENT = "the bench needs nginx as its receiver: apt-get install nginx-light"


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured. Waits are bounded by ``patience`` seconds, whatever happens."""

    name: str
    rows: int  # of a drain
    posts: int  # of the baseline, at each number in flight
    warm_up: int
    repeats: int
    seconds: float  # of one burst at a rate
    rates: tuple[int, ...]
    healthy_rate: int
    hanging: int
    in_flight: tuple[int, int]  # plain, TLS
    large: int  # rows of a large state
    small: int
    jobs: tuple[int, int]  # of a small and of a large batch
    churn: float  # seconds
    hosts: int
    patience: float = 120.0


FULL = Scale(
    "full", 50_000, 20_000, 2_000, 5, 10.0, (200, 2_000), 2_000, 1_000, (10_000, 1_000),
    5_000_000, 10_000, (1_000, 100_000), 600.0, 5_000, 900.0,
)  # fmt: skip
QUICK = Scale(
    "quick", 8_000, 5_000, 1_000, 2, 2.0, (200, 500), 500, 1_000, (2_000, 200),
    200_000, 10_000, (1_000, 10_000), 60.0, 500, 45.0,
)  # fmt: skip
SMOKE = Scale(
    "smoke", 200, 512, 50, 1, 0.5, (200,), 100, 20, (40, 10),
    500, 100, (10, 100), 3.0, 10, 20.0,
)  # fmt: skip


class BenchError(Exception):
    """A figure cannot be measured; the message is fit for a person."""


@asynccontextmanager
async def running(*command: str, output: Path | None = None) -> AsyncIterator[Process]:
    """A child that ends with the context, and with this process however it ends."""
    launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), str(signal.SIGKILL.value), "0", "0")
    with (output or Path(os.devnull)).open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *launcher, *command, stdin=asyncio.subprocess.DEVNULL, stdout=PIPE, stderr=log, cwd=ROOT
        )
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: Process) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.returncode is None:
            with suppress(ProcessLookupError):
                process.send_signal(number)
            with suppress(TimeoutError):
                await asyncio.wait_for(process.wait(), TO_END)


def _as_module(name: str, arguments: Sequence[object]) -> tuple[str, ...]:
    return (sys.executable, "-m", f"tests.bench.{name}", *map(str, arguments))


async def read_line(process: Process, within: float = 60.0) -> str:
    """The next line that a child prints. Raises BenchError when there is none."""
    assert process.stdout is not None
    line = await asyncio.wait_for(process.stdout.readline(), within)
    if not line:
        raise BenchError("a child of the bench ended by itself: see its log")
    return line.decode().strip()


class Nginx:
    """The receiver: 204 for everything, and a count of what it was asked."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://{ADDRESS}:{port}/hooks/webhook"
        self._asked = 0

    async def count(self, http: aiohttp.ClientSession) -> int:
        """How many requests came, without those that ask this."""
        async with http.get(f"http://{ADDRESS}:{self.port}/status") as answer:
            text = await answer.text()
        self._asked += 1
        return int(text.splitlines()[2].split()[2]) - self._asked


def build_nginx_settings(port: int, directory: Path, tls: tuple[int, Path, Path] | None = None) -> str:
    secure = ""
    if tls is not None:
        tls_port, certificate, key = tls
        secure = f"listen {ADDRESS}:{tls_port} ssl; ssl_certificate {certificate}; ssl_certificate_key {key};"
    return f"""
worker_processes 1; worker_rlimit_nofile 20000; pid {directory}/nginx.pid; error_log {directory}/nginx.log crit;
events {{ worker_connections 19000; }}
http {{
    access_log off; keepalive_requests 100000000; keepalive_timeout 3600s; client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy; fastcgi_temp_path {directory}/fcgi; scgi_temp_path {directory}/scgi;
    uwsgi_temp_path {directory}/uwsgi;
    server {{
        listen {ADDRESS}:{port} backlog=20000; {secure}
        location = /status {{ stub_status; }}
        location / {{ return 204; }}
    }}
}}
"""


def find_nginx() -> str:
    """The path of nginx. Raises BenchError where there is none."""
    found = shutil.which("nginx", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if found is None:
        raise BenchError(NGINX_ABSENT)
    return found


@dataclass(slots=True)
class Stage:
    """The running parts that all figures share."""

    scale: Scale
    postgres: str
    broker: str
    nginx: Nginx
    directory: Path
    http: aiohttp.ClientSession
    tell: Callable[[str], object]
    profile: Path | None = None
    kept: dict[str, Any] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: itertools.count(1))

    def new_name(self, of: str) -> str:
        return f"{of}{next(self._numbers)}"

    async def new_database(self) -> str:
        """The DSN of a migrated database without rows."""
        return await create_database(self.postgres, self.new_name("bench_"), TEMPLATE)

    async def new_topic(self) -> str:
        name = self.new_name("bench.")
        await create_topic(self.broker, name, PARTITIONS)
        return name

    @asynccontextmanager
    async def service(self, database: str, *roles: str, topic: str = "", **own: object) -> AsyncIterator[Service]:
        """A `webhookd serve` that is ready, with the product's own leases and windows; asked to stop at the end."""
        kafka = {"kafka_bootstrap_servers": self.broker, "kafka_topics": topic, "kafka_group_id": topic}
        settings = build_settings(
            database,
            lease="60s",
            lease_margin="10s",
            retry_jitter=0.2,
            egress_allow="127.0.0.0/8:*",
            batch_settle_seconds=None,
            cancel_grace=None,
            **(kafka if topic else {}),
            **own,
        )
        service = Service(settings, self.directory / f"{self.new_name('service')}.log", *roles)
        try:
            await service.start()
            yield service
            await service.stop()
        finally:
            service.end()

    @asynccontextmanager
    async def child(self, name: str, *arguments: object) -> AsyncIterator[tuple[Process, str]]:
        """A module of the bench as a process, with the first line that it prints."""
        log = self.directory / f"{self.new_name(name)}.log"
        async with running(*_as_module(name, arguments), output=log) as process:
            try:
                line = await read_line(process)
            except BenchError as error:
                raise BenchError(f"{name}: {error}: {log.read_text()[-2000:]}") from error
            yield process, line

    async def ask(self, name: str, *arguments: object) -> Any:
        """Run a module of the bench to its end; the JSON that it prints."""
        log = self.directory / f"{self.new_name(name)}.log"
        async with running(*_as_module(name, arguments), output=log) as process:
            assert process.stdout is not None
            text = await asyncio.wait_for(process.stdout.read(), self.scale.patience)
            if await asyncio.wait_for(process.wait(), TO_END):
                raise BenchError(f"{name} failed: {log.read_text()[-2000:]}")
        return orjson.loads(text)


@asynccontextmanager
async def open_stage(scale: Scale, tell: Callable[[str], object], profile: Path | None = None) -> AsyncIterator[Stage]:
    """Start what all figures share. Raises BenchError without nginx."""
    nginx_path = find_nginx()
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="webhookd-bench-")))
        postgres = await stack.enter_async_context(embedded_postgres())
        await migrate(await create_database(postgres, TEMPLATE))
        broker = await stack.enter_async_context(embedded_broker())
        http = await stack.enter_async_context(aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)))
        nginx = await stack.enter_async_context(running_nginx(nginx_path, directory))
        yield Stage(scale, build_dsn(postgres, "postgres"), broker, nginx, directory, http, tell, profile)


@asynccontextmanager
async def running_nginx(path: str, directory: Path, tls: tuple[int, Path, Path] | None = None) -> AsyncIterator[Nginx]:
    """Run one that answers 204; ``tls`` is a port, a certificate and its key, beside the plain one."""
    port, settings, log = find_free_port(), directory / "nginx.conf", directory / "nginx.out"
    settings.write_text(build_nginx_settings(port, directory, tls))
    options = ("-p", str(directory), "-c", str(settings), "-e", str(log), "-g", "daemon off; master_process off;")
    async with running(path, *options, output=log):
        await _wait_for_port(port)
        yield Nginx(port)


async def _wait_for_port(port: int, within: float = 20.0) -> None:
    async with asyncio.timeout(within):
        while True:
            with suppress(OSError):
                _, writer = await asyncio.open_connection(ADDRESS, port)
                writer.close()
                return
            await asyncio.sleep(0.05)
