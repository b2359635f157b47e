"""Processes that stand still: SIGSTOP is sent at once, and on a busy machine some of a process's threads run on a while."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

WITHIN = 60.0
STILL = frozenset("TtZXx")


def wait_until_still(pid: int) -> None:
    """Return once all threads of a process that was sent SIGSTOP stand still. Raises TimeoutError."""
    deadline = time.monotonic() + WITHIN
    while not set(_list_states(pid)) <= STILL:
        if time.monotonic() > deadline:
            raise TimeoutError(f"process {pid} does not stop")
        time.sleep(0.001)


def _list_states(pid: int) -> list[str]:
    """The state letter of each thread (proc_pid_stat(5)); one that has ended meanwhile is left out."""
    states = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with suppress(FileNotFoundError, ProcessLookupError):
                states.append((task / "stat").read_text().rpartition(")")[2].split()[0])
    return states
