"""What is measured of other processes: CPU, memory, WAL.

Belongs here: reading counters. Does not belong here: when they are read.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import asyncpg
import psutil

_SCHED = 2  # CPUCLOCK_SCHED of Linux's per-process CPU clocks


def read_cpu(pid: int) -> float:
    """Seconds of CPU that a process has used, to the nanosecond: its CPU clock, ended threads included."""
    return time.clock_gettime((~pid << 3) | _SCHED)


def read_postgres_cpu(postmaster: int) -> float:
    """Seconds of CPU of all of a server's processes; ended ones are in what their parent has waited for."""
    server = psutil.Process(postmaster)
    times = server.cpu_times()
    total = read_cpu(postmaster) + times.children_user + times.children_system
    for child in server.children():
        try:
            total += read_cpu(child.pid)
        except OSError:  # ended meanwhile
            continue
    return total


def read_memory(pid: int) -> int:
    """Bytes of resident memory that are the process's own."""
    return int(psutil.Process(pid).memory_full_info().uss)


async def find_postmaster(connection: asyncpg.Connection) -> int:
    """The server's first process."""
    backend: int = await connection.fetchval("SELECT pg_backend_pid()")
    return psutil.Process(backend).ppid()


@dataclass(frozen=True, slots=True)
class Reading:
    """Counters at one instant: seconds of CPU, bytes of WAL, the monotonic clock."""

    service: float
    postgres: float
    wal: int
    at: float

    def __sub__(self, earlier: Reading) -> Reading:
        return Reading(
            self.service - earlier.service,
            self.postgres - earlier.postgres,
            self.wal - earlier.wal,
            self.at - earlier.at,
        )

    def per(self, count: int) -> Spent:
        """Per delivery."""
        return Spent(
            self.service / count * 1e6, self.postgres / count * 1e6, self.wal / count, count / max(self.at, 1e-9)
        )


@dataclass(frozen=True, slots=True)
class Spent:
    """Per delivery: microseconds of CPU and bytes of WAL; and deliveries a second."""

    service: float
    postgres: float
    wal: float
    rate: float

    @classmethod
    def median(cls, several: Sequence[Self]) -> Self:
        """The median of each figure."""
        return cls(
            *(statistics.median(getattr(each, name) for each in several) for name in ("service", "postgres", "wal")),
            statistics.median(each.rate for each in several),
        )


class Meter:
    """Reads the counters of some service processes and the database server."""

    def __init__(self, connection: asyncpg.Connection, postmaster: int, pids: Sequence[int]) -> None:
        self._connection = connection
        self._postmaster = postmaster
        self._pids = pids

    async def read(self) -> Reading:
        """Read them all, now."""
        wal = await self._connection.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint")
        service = sum(map(read_cpu, self._pids))
        return Reading(service, read_postgres_cpu(self._postmaster), wal, time.monotonic())


def percentile(values: Iterable[float], share: float) -> float:
    """The value that ``share`` of them do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else math.nan
