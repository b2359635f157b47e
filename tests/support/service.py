"""The installed program as its users meet it: `webhookd` as real processes, and a client of the admin API.

Belongs here: starting, breaking and ending processes, and HTTP calls. Does not belong here: jobs, batches, webhooks.
"""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import asyncpg
import orjson
from aiohttp import ClientError, ClientSession, ClientTimeout
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from service.tools.embedded import LAUNCHER
from tests.support.ports import find_free_port
from tests.support.stopping import wait_until_still

PROGRAM = Path(sys.executable).with_name("webhookd")
OPERATOR_KEY = "op_" + "0123456789abcdef" * 3
ENCRYPTION_KEYS = "test:" + base64.b64encode(bytes(range(32))).decode()
START_TIMEOUT = 90.0
STOP_TIMEOUT = 45.0
PATIENCE = 60.0

T = TypeVar("T")


def build_settings(database: str = "", **own: object) -> dict[str, str]:
    """The environment of a service that may reach loopback, with `own` settings by lower-case name without prefix.

    Windows are short, so that tests are, but for the grace in which the deletion of a canceled batch has to come; the
    lease is the shortest that is allowed. None leaves a setting out.
    """
    settings: dict[str, object] = {
        "database_url": database or None,
        "operator_key": OPERATOR_KEY,
        "encryption_keys": ENCRYPTION_KEYS,
        "api_host": "127.0.0.1",
        "api_port": find_free_port(),
        "ops_host": "127.0.0.1",
        "ops_port": find_free_port(),
        "allow_http": "true",
        "egress_allow": "127.0.0.1/32:*",
        "egress_ports": "*",
        "limit_reads": 1_000_000,
        "limit_writes": 1_000_000,
        "limit_tests": 10_000,
        "batch_settle_seconds": "300ms",
        "cancel_grace": "5s",
        "retry_jitter": 0,
        "lease": "31s",
        "lease_margin": "1s",
        **own,
    }
    return {f"WEBHOOKD_{name.upper()}": str(value) for name, value in settings.items() if value is not None}


async def eventually(probe: Callable[[], Awaitable[T]], within: float = PATIENCE, every: float = 0.02) -> T:
    """What `probe` gives as soon as that is true; for what gives no signal."""
    last: T | None = None
    try:
        async with asyncio.timeout(within):
            while not (last := await probe()):
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"not within {within:g} s; last: {last!r}") from None
    return last


# --- Processes ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended."""

    status: int
    stdout: str
    stderr: str


async def run_program(*arguments: str, settings: Mapping[str, str], within: float = 120.0) -> Ended:
    """Run `webhookd arguments` to its end."""
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM), *arguments, env=_environment(settings), stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), within)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode is not None
    return Ended(process.returncode, stdout.decode(), stderr.decode())


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """`settings` and nothing that the machine happens to have set, but what coverage needs to follow."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("COV") or name in {"PATH", "HOME"}}
    return {**kept, **settings}


class Service:
    """One `webhookd serve`; started again it keeps its ports. Ends with the thread that started it, at the latest."""

    def __init__(self, settings: Mapping[str, str], log: Path, *roles: str) -> None:
        self.settings = dict(settings)
        self.log = log
        self._options = tuple(option for role in roles for option in ("--role", role))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def api_url(self) -> str:
        return f"http://127.0.0.1:{self.settings['WEBHOOKD_API_PORT']}"

    @property
    def ops_url(self) -> str:
        return f"http://127.0.0.1:{self.settings['WEBHOOKD_OPS_PORT']}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.end()

    async def start(self) -> None:
        """Return when it is ready."""
        self.launch()
        await self.wait_until_ready()

    def launch(self, *options: str) -> None:
        """Start the process, on a thread that outlives it: the kernel ends it with that thread."""
        assert not self.running
        variables = (f"{name}={value}" for name, value in _environment(self.settings).items())
        command = ("/usr/bin/env", "-i", *variables, str(PROGRAM), "serve", *self._options, *options)
        launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER, str(os.getpid()), str(signal.SIGKILL.value), "0", "0")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen([*launcher, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    async def wait_until_ready(self) -> None:
        await self._wait_for_readiness(200)

    async def wait_until_not_ready(self) -> None:
        await self._wait_for_readiness(503)

    async def _wait_for_readiness(self, status: int) -> None:
        async with ClientSession(timeout=ClientTimeout(5)) as http:

            async def answers() -> bool:
                assert self.running, "the service ended by itself"
                with suppress(ClientError, TimeoutError):
                    async with http.get(f"{self.ops_url}/readyz") as answer:
                        return answer.status == status
                return False

            try:
                await eventually(answers, START_TIMEOUT, 0.05)
            except AssertionError as error:
                raise AssertionError(f"waiting for readiness {status}: {error}\n{self.tail()}") from None

    async def stop(self, within: float = STOP_TIMEOUT) -> int:
        """SIGTERM, and the exit status."""
        self._signal(signal.SIGTERM)
        return await self.wait(within)

    async def kill(self) -> None:
        """SIGKILL: it has no say in it."""
        self._signal(signal.SIGKILL)
        await self.wait()

    async def wait(self, within: float = STOP_TIMEOUT) -> int:
        """The exit status, once it ended by itself."""
        await eventually(self._ended, within, 0.005)
        assert self._process is not None
        return self._process.wait()

    async def _ended(self) -> bool:
        return not self.running

    def change_group(self) -> None:
        """Consume as another group from the next start on: the embedded broker never notices that a member was killed.

        Where reading goes on does not change: that is in the database. How a group gets over it is tested with Kafka.
        """
        self.settings["WEBHOOKD_KAFKA_GROUP_ID"] += "-again"

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)
        wait_until_still(self.pid)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def end(self) -> None:
        """Leave nothing behind."""
        self._signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait(STOP_TIMEOUT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def tail(self, size: int = 6000) -> str:
        """The end of what it logged."""
        return self.log.read_text(errors="replace")[-size:] if self.log.is_file() else ""

    async def fetch_metric(self, name: str, **labels: str) -> float | None:
        """Sum of the samples of `webhookd_{name}` with these labels; None if there is none."""
        async with ClientSession() as http, http.get(f"{self.ops_url}/metrics") as answer:
            text = await answer.text()
        values = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == f"webhookd_{name}" and labels.items() <= sample.labels.items()
        ]
        return sum(values) if values else None


class ForkingParent:
    """A process that has imported the program and forks on request: the twentieth start costs as little as the second.

    What it forks are processes like any other: they run the same command, and are killed alone.
    """

    def __init__(self) -> None:
        command = (sys.executable, "-c", FORKING)
        environment = _environment({})
        self._process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def fork(self, settings: Mapping[str, str], log: Path) -> int:
        """Run `webhookd serve` with `settings`; returns a pidfd."""
        assert self._process.stdin is not None and self._process.stdout is not None
        order = {"environment": _environment(settings), "log": str(log)}
        self._process.stdin.write(orjson.dumps(order) + b"\n")
        self._process.stdin.flush()
        return os.pidfd_open(int(self._process.stdout.readline()))

    def end(self) -> None:
        """End it, and by the kernel what it forked."""
        self._process.kill()
        self._process.communicate()


FORKING = """
import ctypes, json, os, signal, sys
from importlib import import_module
from service.__main__ import COMMANDS, main

import_module(COMMANDS["serve"][0])
signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they end
for line in sys.stdin:
    order = json.loads(line)
    child = os.fork()
    if child:
        print(child, flush=True)
        continue
    ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    log = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.exit(main(["serve"]))
"""


class ForkedService(Service):
    """A service whose process comes from a ForkingParent. How it ends is not known, only that it did."""

    def __init__(self, parent: ForkingParent, settings: Mapping[str, str], log: Path) -> None:
        super().__init__(settings, log)
        self._parent = parent
        self._pidfd: int | None = None

    @property
    def pid(self) -> int:
        lines = Path(f"/proc/self/fdinfo/{self._pidfd}").read_text().splitlines()
        return next(int(line.removeprefix("Pid:")) for line in lines if line.startswith("Pid:"))

    @property
    def running(self) -> bool:
        return self._pidfd is not None and not select.select([self._pidfd], [], [], 0)[0]

    def launch(self, *options: str) -> None:
        assert not self.running and not options
        self._forget()
        self._pidfd = self._parent.fork(self.settings, self.log)

    async def wait(self, within: float = STOP_TIMEOUT) -> int:
        await eventually(self._ended, within, 0.005)
        return 0

    def end(self) -> None:
        self._signal(signal.SIGKILL)
        self._forget()

    def _forget(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None

    def _signal(self, number: signal.Signals) -> None:
        if self._pidfd is not None and self.running:
            signal.pidfd_send_signal(self._pidfd, number)


class NewService:
    """Makes services that share a directory for logs; none outlives the test that asked for them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._parent: ForkingParent | None = None
        self.made: list[Service] = []

    def __call__(self, settings: Mapping[str, str], *roles: str) -> Service:
        service = Service(settings, self._build_log_path(), *roles)
        self.made.append(service)
        return service

    def fork(self, settings: Mapping[str, str]) -> Service:
        """One that starts in no time, for tests that start it often."""
        self._parent = self._parent or ForkingParent()
        service = ForkedService(self._parent, settings, self._build_log_path())
        self.made.append(service)
        return service

    def end(self) -> None:
        for service in self.made:
            service.end()
        if self._parent is not None:
            self._parent.end()

    def _build_log_path(self) -> Path:
        return self._directory / f"service-{len(self.made)}.log"


async def expire_leases(database: str) -> None:
    """As if LEASE had passed since: for when every process that held one is dead."""
    connection = await asyncpg.connect(database)
    try:
        await connection.execute("UPDATE deliveries SET lease_until = now() WHERE lease_token IS NOT NULL")
    finally:
        await connection.close(timeout=5)


# --- Admin API ----------------------------------------------------------------------------------------------------


class Refused(Exception):
    """The API answered with a problem."""

    def __init__(self, status: int, problem: Any) -> None:
        super().__init__(f"{status} {problem}")
        self.status = status
        self.problem = problem


class Api:
    """The admin API as one caller uses it: an operator for `tenant`, or whoever `authorization` says."""

    def __init__(self, base: str, tenant: str, http: ClientSession, authorization: str | None = None) -> None:
        self.tenant = tenant
        self._base = base
        self._http = http
        self._headers = {"x-tenant-id": tenant, "authorization": f"Bearer {OPERATOR_KEY}"}
        if authorization is not None:
            self._headers = {"authorization": authorization}

    def with_key(self, key: str) -> Api:
        """The same API for the holder of a key."""
        return Api(self._base, self.tenant, self._http, f"Bearer {key}")

    def with_password(self, key_id: str, secret: str) -> Api:
        """The same for one who uses a key's two parts as user and password."""
        encoded = base64.b64encode(f"{key_id}:{secret}".encode()).decode()
        return Api(self._base, self.tenant, self._http, f"Basic {encoded}")

    def of_tenant(self, tenant: str) -> Api:
        """The same API for the operator of another tenant."""
        return Api(self._base, tenant, self._http)

    def of_service(self, service: Service) -> Api:
        """The same tenant at another service."""
        return Api(service.api_url, self.tenant, self._http)

    async def call(self, method: str, path: str, body: Any = None, **options: Any) -> tuple[int, Any]:
        """Status and document of the answer. Raises Refused above 399."""
        url = URL(f"{self._base}{path}", encoded=True)
        headers = {**self._headers, **options.pop("headers", {})}
        sent = {} if body is None else {"json": body}
        async with self._http.request(method, url, headers=headers, **sent, **options) as answer:
            document = await answer.json(content_type=None) if await answer.read() else None
            if answer.status >= 400:
                raise Refused(answer.status, document)
            return answer.status, document

    async def get(self, path: str, **options: Any) -> Any:
        return (await self.call("GET", path, **options))[1]

    async def put(self, path: str, body: Any) -> Any:
        return (await self.call("PUT", path, body))[1]

    async def post(self, path: str, body: Any = None) -> Any:
        return (await self.call("POST", path, body))[1]

    async def patch(self, path: str, body: Any) -> Any:
        return (await self.call("PATCH", path, body))[1]

    async def delete(self, path: str) -> Any:
        return (await self.call("DELETE", path))[1]

    async def find(self, path: str) -> Any | None:
        """What is at `path`, None if nothing is."""
        try:
            return await self.get(path)
        except Refused as refused:
            if refused.status != 404:
                raise
            return None

    async def list(self, path: str, **query: str) -> list[Any]:
        """Every row of a list, page by page, newest first."""
        rows: list[Any] = []
        cursor: dict[str, str] = {}
        while True:
            page = await self.get(f"{path}?{URL.build(query={**query, **cursor}).raw_query_string}")
            rows += page["data"]
            if page["next_cursor"] is None:
                return rows
            cursor = {"cursor": page["next_cursor"]}


def name_in_path(name: str) -> str:
    """A name as one segment of a path."""
    return quote(name, safe="")


def make_tenant_id() -> str:
    """A tenant that no other test uses."""
    return f"acct_{secrets.token_hex(5)}"
