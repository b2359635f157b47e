"""aiohttp's client as the measure of things: its CPU per 1 KB POST, with the product's loop and GC settings.

    python -m tests.bench.baseline <port> <posts>

Prints, for each number in flight, microseconds of CPU and POSTs a second.
"""

# ruff: noqa: T201  # it prints its figures
from __future__ import annotations

import sys
import time

import orjson

from service.lifecycle import run_on_uvloop, tune_gc
from tests.bench.sender import IN_FLIGHT, measure_aiohttp


def measure(port: int, posts: int) -> dict[str, tuple[float, float]]:
    figures = {}
    for in_flight in IN_FLIGHT:
        before = time.monotonic()
        cpu = run_on_uvloop(measure_aiohttp(port, posts, in_flight))
        sent = posts + max(in_flight * 4, 1000)  # with its warm-up
        figures[str(in_flight)] = (cpu, sent / (time.monotonic() - before))
    return figures


if __name__ == "__main__":
    tune_gc()
    print(orjson.dumps(measure(int(sys.argv[1]), int(sys.argv[2]))).decode())
