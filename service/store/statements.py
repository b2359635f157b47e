"""The SQL statements, read once from ``sql/<name>.sql``: one statement a file, named like what runs it; and their rows."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the text of ``sql/<name>.sql``. Raises FileNotFoundError for a name that does not exist."""
    return files("service.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def columns(rows: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Turn rows into one list per column, for ``unnest``; ``width`` columns even when there are no rows."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]
