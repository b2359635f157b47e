"""The bench runs, and says its figures in the form that scripts read. What they are is nobody's verdict here."""

import asyncio
import math
import re
import sys

from tests.bench.metering import percentile
from tests.bench.profiling import summarize
from tests.bench.reporting import MEANINGS, Figure, build_table
from tests.bench.stage import ROOT, find_nginx
from tests.support.require import require_program

LINE = re.compile(r"P\d+ (nan|-?[\d.]+) target [\d.]+( \S+)? (ok|missed)")


def test_a_line_has_row_value_target_label_and_verdict():
    assert Figure("P1", 0.4123, 0.5).line == "P1 0.41 target 0.5 ok"
    assert Figure("P4", 1.4, 2.0, "p50@200/s").line == "P4 1.4 target 2.0 p50@200/s ok"
    assert Figure("P3", 2, 0, "duplicates").line == "P3 2 target 0 duplicates missed"
    assert Figure("P9", math.nan, 45, "cpu-us").line == "P9 nan target 45 cpu-us missed"


def test_a_figure_is_judged_as_it_is_printed():
    assert Figure("P1", 0.504, 0.5).verdict == "ok"
    assert Figure("P1", 0.506, 0.5).verdict == "missed"


def test_every_row_has_a_meaning():
    figures = [Figure(row, 1.0, 1.0, raw="[raw]") for row in MEANINGS]
    assert build_table(figures, "title").row_count == len(figures) == 11


def test_a_percentile_is_a_value_that_was_seen():
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert percentile(range(1, 101), 0.99) == 99
    assert math.isnan(percentile([], 0.5))


def test_a_profile_counts_a_line_once_per_stack():
    report = summarize("a;b 3\na;b;b 1\n")
    assert "100.0% b" in report and "100.0% a" in report


async def test_the_bench_runs_through():
    require_program(find_nginx_or_name())
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench", "--smoke", "--only", "P1", "P9"),
        cwd=ROOT, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), 250)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    lines = [line for line in stdout.decode().splitlines() if line.startswith("P")]
    assert process.returncode == 0, stdout.decode() + stderr.decode()
    assert all(LINE.fullmatch(line) for line in lines), lines
    assert {line.split()[0] for line in lines} == {"P1", "P9"}


def find_nginx_or_name() -> str:
    """Debian puts it where only root's path leads."""
    try:
        return find_nginx()
    except Exception:  # noqa: BLE001 - require_program says what is missing
        return "nginx"
