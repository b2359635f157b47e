"""The SQL statements, read at the start from ``sql/<name>.sql``: one a file, named like what runs it; and their rows."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files

# One list by several columns: each has an index of its own, so each is a statement, made from the same text.
_LISTS = {
    "list_deliveries_of_groups": ("group_key", "bigint"),
    "list_deliveries_of_messages": ("message_id", "text"),
    "list_deliveries_of_tenants": ("tenant_id", "text"),
    "list_deliveries_of_webhooks": ("webhook_key", "bigint"),
}


def _read_all() -> dict[str, str]:
    found = (file for file in files("service.store").joinpath("sql").iterdir() if file.name.endswith(".sql"))
    texts = {file.name.removesuffix(".sql"): file.read_text(encoding="utf-8") for file in found}
    listing = texts.pop("list_deliveries")
    for name, (column, type_) in _LISTS.items():
        texts[name] = listing.replace("<column>", column).replace("<type>", type_)
    return texts


_STATEMENTS = _read_all()  # at the start: a process whose files are replaced goes on with those that fit its code


def statement(name: str) -> str:
    """Return the text of ``sql/<name>.sql``. Raises KeyError for a name that does not exist."""
    return _STATEMENTS[name]


def columns(rows: Iterable[tuple[object, ...]], width: int) -> list[list[object]]:
    """Turn rows into one list per column, for ``unnest``; ``width`` columns even when there are no rows."""
    turned = [list(column) for column in zip(*rows, strict=True)]
    return turned or [[] for _ in range(width)]
