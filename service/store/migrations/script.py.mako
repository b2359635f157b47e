"""${message}"""

from service.store.migrations.script import run

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}


def upgrade() -> None:
    """Run the SQL file of the same name."""
    run("${up_revision}")
