"""What commands have in common at a terminal: text that it does not obey, instants, refusals with their exit status.

Belongs here: what more than one command says in the same way. Does not belong here: what any one of them does.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, datetime

from service.config import ConfigError
from service.ports import StoreUnavailable

ADDRESS_HINT = "see WEBHOOKD_DATABASE_URL"


def escape(text: str) -> str:
    """Write control characters so that a terminal does not obey them."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def show_instant(at: datetime | None) -> str:
    """An instant to the second, in UTC; ``-`` for none."""
    return "-" if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def refuse(reason: object) -> None:
    """Say on standard error why not, a line at a time."""
    for line in str(reason).split("\n"):
        print(escape(line), file=sys.stderr)


def run_with_database(work: Callable[[], int], hint: str = ADDRESS_HINT) -> int:
    """What ``work`` returns; 1 when the database is away, with a ``hint`` what to do, 2 for settings or arguments.

    ``work`` reads the settings itself. Of what it may raise, ConfigError, ValueError and StoreUnavailable end here.
    """
    try:
        return work()
    except (ConfigError, ValueError) as error:
        refuse(error)
        return 2
    except StoreUnavailable as error:
        refuse(f"the database does not answer ({error}): {hint}")
        return 1
