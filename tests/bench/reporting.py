"""How figures are said: a line of its own for each, and one table of all.

Belongs here: the form of a line, the verdict, the table. Does not belong here: measuring.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

MEANINGS = {
    "P1": "service CPU per durable delivery ÷ aiohttp's per POST",
    "P2": "the same from Kafka record to durable outcome",
    "P3": "service + PostgreSQL CPU, four deliver processes ÷ one",
    "P4": "record produced → POST received, minus a bare loop's (ms)",
    "P5": "p99 of healthy webhooks while others hang ÷ without them",
    "P6": "memory per attempt in flight (KiB)",
    "P7": "cost at a large state ÷ at a small one",
    "P8": "after long churn ÷ after its first minute",
    "P9": "service + PostgreSQL per delivery (µs of CPU, KB of WAL)",
    "P10": "list calls, large ÷ small; the gauges' share of a core (%)",
    "P11": "cores for TLS to many host names",
}


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured figure; at most ``target`` is wanted. ``raw`` says in words what it was computed from."""

    row: str
    value: float
    target: float
    label: str = ""
    raw: str = ""

    @property
    def shown(self) -> float:
        """The value as it is printed and judged."""
        return self.value if math.isnan(self.value) else round(self.value, 2)

    @property
    def verdict(self) -> str:
        """The last word of the line; a figure that could not be measured is missed."""
        return "ok" if self.shown <= self.target else "missed"

    @property
    def line(self) -> str:
        """The line that scripts read: ``P4 1.4 target 2.0 p50@200/s ok``."""
        label = f" {self.label}" if self.label else ""
        return f"{self.row} {self.shown} target {self.target}{label} {self.verdict}"


def build_table(figures: Iterable[Figure], title: str) -> Table:
    """Build the table: ratios, with the raw figures beside them."""
    table = Table(title=title, title_justify="left", show_lines=False)
    for column in ("#", "figure", "value", "target", "", "from"):
        table.add_column(column, justify="right" if column in ("value", "target") else "left", overflow="fold")
    seen = ""
    for figure in figures:
        meaning = "" if figure.row == seen else MEANINGS[figure.row]
        seen = figure.row
        colour = "green" if figure.verdict == "ok" else "red"
        what = " ".join(part for part in (meaning, f"[{figure.label}]" if figure.label else "") if part)
        table.add_row(
            *(figure.row, what.replace("[", r"\["), str(figure.shown), str(figure.target)),
            *(f"[{colour}]{figure.verdict}[/]", figure.raw.replace("[", r"\[")),
        )
    return table


def print_report(figures: list[Figure], title: str) -> None:
    """Print the table, then every figure's line."""
    console = Console(width=None if Console().is_terminal else 160)
    console.print(build_table(figures, title))
    for figure in figures:
        print(figure.line)  # noqa: T201 - the line that scripts read, never folded
