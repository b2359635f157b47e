"""The bench: one command, a table of ratios, and a line for each figure. How to read it: README.md beside this.

python -m tests.bench [--quick | --smoke] [--only P1 P4 …] [--profile DIRECTORY]
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

from service.lifecycle import run_on_uvloop, tune_gc
from tests.bench.churn import measure_churn
from tests.bench.drains import measure_drains, measure_processes
from tests.bench.latency import measure_fairness, measure_latency
from tests.bench.memory import measure_memory
from tests.bench.reporting import Figure, print_report
from tests.bench.scaling import measure_scale
from tests.bench.stage import FULL, QUICK, SMOKE, BenchError, Scale, Stage, open_stage
from tests.bench.tls import measure_tls

Measure = Callable[[Stage], Awaitable[list[Figure]]]

MEASURES: tuple[tuple[tuple[str, ...], Measure], ...] = (
    (("P1", "P2", "P9"), measure_drains),
    (("P4",), measure_latency),
    (("P5",), measure_fairness),
    (("P3",), measure_processes),
    (("P6",), measure_memory),
    (("P7", "P10"), measure_scale),
    (("P11",), measure_tls),
    (("P8",), measure_churn),
)
QUICK_ROWS = frozenset({"P1", "P2", "P4", "P5", "P9"})


def tell(line: str) -> None:
    """Say what is being done, apart from the figures."""
    sys.stderr.write(f"[{time.strftime('%H:%M:%S')}] {line}\n")
    sys.stderr.flush()


async def measure(scale: Scale, wanted: frozenset[str], profile: Path | None) -> list[Figure]:
    """Measure the wanted rows; what cannot be measured is NaN, and missed."""
    figures: list[Figure] = []
    async with open_stage(scale, tell, profile) as stage:
        for rows, run in MEASURES:
            if wanted.intersection(rows):
                figures += [figure for figure in await attempt(run, stage, rows) if figure.row in wanted]
    return sorted(figures, key=lambda figure: int(figure.row[1:]))


async def attempt(run: Measure, stage: Stage, rows: tuple[str, ...]) -> list[Figure]:
    try:
        return await run(stage)
    except Exception as error:  # noqa: BLE001 - whatever it is, it costs these figures only
        traceback.print_exc()
        return [
            Figure(row, math.nan, 0, "not-measured", (str(error) or repr(error)).splitlines()[0][:200]) for row in rows
        ]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_const", dest="scale", const=QUICK, help="in small, under three minutes")
    size.add_argument("--smoke", action="store_const", dest="scale", const=SMOKE, help="tiny: only that it runs")
    parser.add_argument("--only", nargs="+", metavar="P", help="only these rows")
    parser.add_argument("--profile", type=Path, help="write py-spy's hot lines of P1 and P2 to this directory")
    parser.set_defaults(scale=FULL)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    rows = frozenset(row for names, _ in MEASURES for row in names)
    wanted = frozenset(arguments.only or (QUICK_ROWS if arguments.scale is QUICK else rows))
    if arguments.profile:
        arguments.profile.mkdir(parents=True, exist_ok=True)
    tune_gc()
    before = time.monotonic()
    try:
        figures = run_on_uvloop(measure(arguments.scale, wanted, arguments.profile))
    except BenchError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print_report(figures, f"{arguments.scale.name} bench, {time.monotonic() - before:.0f} s")
    return 0 if not any(math.isnan(figure.value) for figure in figures) else 1


if __name__ == "__main__":
    sys.exit(main())
