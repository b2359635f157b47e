"""Opaque cursors of lists.

Belongs here: writing and reading them. A cursor holds the key of the last row shown, so that rows which arrive later
never shift a page.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

from service.api.problems import Problem

T = TypeVar("T")
BIGINT = 2**63 - 1
BIGINT_DIGITS = 19


def _write(text: str) -> str:
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(cursor: str, kind: str) -> str:
    bad = Problem(400, "bad_cursor", "The cursor is not one that this list gave out.")
    try:
        padded = cursor.encode("ascii") + b"=" * (-len(cursor) % 4)
        found, _, key = base64.b64decode(padded, altchars=b"-_", validate=True).decode().partition(":")
    except (ValueError, binascii.Error):
        raise bad from None
    if found != kind or not key:
        raise bad
    return key


def cut(found: Sequence[T], limit: int, write: Callable[[T], str]) -> tuple[Sequence[T], str | None]:
    """Part what was found, at most one more than ``limit``, into a page and the cursor that ``write`` makes of its last.

    None when there is no more.
    """
    page = found[:limit]
    return page, write(page[-1]) if len(found) > limit else None


def write_number(kind: str, key: int) -> str:
    """Make the cursor that continues after row ``key`` of the list ``kind``."""
    return _write(f"{kind}:{key}")


def read_number(kind: str, cursor: str | None) -> int:
    """Return the row to continue after; without a cursor, one past every row. Raises Problem (400)."""
    if cursor is None:
        return BIGINT
    key = _read(cursor, kind)
    if not (key.isascii() and key.isdecimal() and len(key) <= BIGINT_DIGITS) or int(key) > BIGINT:
        raise Problem(400, "bad_cursor", "The cursor is not one that this list gave out.")
    return int(key)
