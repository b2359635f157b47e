"""Names and texts as callers write them: which are allowed, and how they come out of a path.

Belongs here: rules about characters and lengths. Does not belong here: what a name refers to.
"""

from __future__ import annotations

from urllib.parse import unquote_to_bytes

from service.api.problems import Problem
from service.domain.names import is_name


def check_name(text: str) -> str:
    """Return the name. Raises ValueError for one that is not allowed."""
    if not is_name(text):
        raise ValueError("must be 1 to 255 characters, no control characters, not '.' or '..'")
    return text


def check_text(text: str) -> str:
    """Return a free text. Raises ValueError for NUL, which the database cannot hold."""
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


def check_bytes(limit: int, text: str) -> str:
    """Return a text that has at most ``limit`` bytes in UTF-8. Raises ValueError."""
    if len(check_text(text).encode()) > limit:
        raise ValueError(f"must have at most {limit} bytes")
    return text


def decode_segment(segment: str) -> str:
    """Decode one percent-encoded path segment; ``%2F`` stays inside it. Raises Problem (400) for bad UTF-8."""
    try:
        return unquote_to_bytes(segment.encode("utf-8", "surrogateescape")).decode()
    except UnicodeDecodeError:
        raise Problem(400, "malformed_path", "The path is not percent-encoded UTF-8.") from None
