"""Where a process's time goes, by py-spy where it is installed: the lines with most time of their own.

Belongs here: running py-spy beside something. Does not belong here: what runs meanwhile.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.bench.stage import BenchError, running

RATE = 500
LONGEST = 120
SHOWN = 40
IDLE = ("_run_safe_shutdown_loop",)
"""Threads that wait where py-spy does not see it."""


@asynccontextmanager
async def profiled(pid: int, report: Path) -> AsyncIterator[None]:
    """Sample a process while inside, then write its hot lines to ``report``. Raises BenchError without py-spy."""
    program = shutil.which(os.environ.get("PY_SPY", "py-spy"))
    if program is None:
        raise BenchError("--profile needs py-spy on the path, or PY_SPY")
    raw = report.with_suffix(".raw")
    options = ("-p", str(pid), "-r", str(RATE), "-d", str(LONGEST), "-f", "raw", "-o", str(raw))
    async with running(program, "record", *options, output=report.with_suffix(".log")) as process:
        await asyncio.sleep(1.5)  # it reads symbols first
        yield
        if process.returncode is not None:
            raise BenchError(f"py-spy ended by itself: {report.with_suffix('.log').read_text()[-500:]}")
        process.send_signal(signal.SIGINT)
        await asyncio.wait_for(process.wait(), 60)
    report.write_text(summarize(raw.read_text()))


def summarize(raw: str) -> str:
    """The lines with most samples of their own, then those with most in all, from folded stacks."""
    own: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if any(idle in stack for idle in IDLE):
            continue
        frames = stack.split(";")
        own[frames[-1]] += int(count)
        for frame in set(frames):
            total[frame] += int(count)
    samples = max(1, sum(own.values()))
    parts = []
    for title, counter in (("own", own), ("with callees", total)):
        lines = [f"{count / samples:6.1%} {frame}" for frame, count in counter.most_common(SHOWN)]
        parts.append("\n".join([f"{samples} samples, {title}:", *lines]))
    return "\n\n".join(parts) + "\n"
