"""A machine whose wall clock is wrong, for one process: libfaketime between it and its C library."""

from pathlib import Path

import pytest

LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/lib/faketime/libfaketimeMT.so.1")


def shift_clock(offset: str) -> dict[str, str]:
    """Environment of a process whose wall clock is off by `offset`, such as `+3600`; its monotonic clock is right."""
    return {"LD_PRELOAD": str(find_library()), "FAKETIME": offset, "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def step_clock_by(file: Path) -> dict[str, str]:
    """The same with the offset in a file that may be written while the process runs."""
    step = {"FAKETIME_TIMESTAMP_FILE": str(file), "FAKETIME_NO_CACHE": "1"}
    return {"LD_PRELOAD": str(find_library()), "FAKETIME_DONT_FAKE_MONOTONIC": "1", **step}


def find_library() -> Path:
    """The library, or a skip."""
    found = [path for pattern in LIBRARIES for path in Path("/").glob(pattern.lstrip("/"))]
    if not found:
        pytest.skip("libfaketime is not installed")
    return found[0]
