"""``webhookd config``: every setting with value, source, default, range and meaning.

Belongs here: printing. What the rows say is made in ``service.config``; secrets come masked from there.
"""

from __future__ import annotations

import argparse

from rich.console import Console
from rich.table import Table
from rich.text import Text

from service.config import ConfigError, Row, describe, load_configuration
from service.tools.terminal import escape, refuse

_COLUMNS = ("setting", "value", "source", "default", "range", "meaning")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare what the command takes: nothing."""


def run(_: argparse.Namespace) -> int:
    """Run the command."""
    return run_config()


def run_config() -> int:
    """Print the settings in force; 0, or 2 with one line a problem on stderr when they cannot be used."""
    try:
        rows = describe(load_configuration(needs=()))
    except ConfigError as error:
        refuse(error)
        return 2
    console = Console()
    if not console.is_terminal:  # a pipe or a file wants whole lines to search
        for row in rows:
            print(escape(f"{row.name}={row.value}  # {row.source}; default {row.default}; {row.range}; {row.meaning}"))
        return 0
    for group in dict.fromkeys(row.group for row in rows):
        console.print(_table(group, [row for row in rows if row.group == group]))
    return 0


def _table(title: str, rows: list[Row]) -> Table:
    table = Table(*_COLUMNS, title=title, title_justify="left", expand=True)
    table.columns[0].no_wrap = True
    for row in rows:
        cells = (row.name, row.value, row.source, row.default, row.range, row.meaning)
        table.add_row(*(Text(escape(cell.replace("`", ""))) for cell in cells), style=_style(row))
    return table


def _style(row: Row) -> str:
    return "" if row.source == "default" else "bold"
