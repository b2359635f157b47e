"""How a revision runs its SQL file: as one script, inside Alembic's transaction."""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from alembic import op


def run(name: str) -> None:
    """Run ``<name>.sql``, which may hold several statements."""
    text = files("service.store.migrations").joinpath(f"{name}.sql").read_text(encoding="utf-8")
    adapted: Any = op.get_bind().connection.dbapi_connection
    adapted.run_async(lambda connection: connection.execute(text))
