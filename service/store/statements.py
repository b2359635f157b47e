"""The SQL statements, read once from ``sql/<name>.sql``: one statement a file, named like what runs it."""

from __future__ import annotations

from functools import cache
from importlib.resources import files


@cache
def statement(name: str) -> str:
    """Return the text of ``sql/<name>.sql``. Raises FileNotFoundError for a name that does not exist."""
    return files("service.store").joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")
