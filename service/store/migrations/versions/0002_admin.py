"""What the admin API needs."""

from __future__ import annotations

from service.store.migrations.script import run

revision = "0002_admin"
down_revision = "0001_core"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Run the SQL file of the same name."""
    run(revision)
