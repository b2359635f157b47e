"""The core."""

from __future__ import annotations

from service.store.migrations.script import run

revision = "0001_core"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the SQL file of the same name."""
    run(revision)
