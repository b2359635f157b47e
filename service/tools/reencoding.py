"""What a captured body may have been before something between the wire and the capture wrote it anew.

Belongs here: guesses, each with the story that it stands for. Pure. Does not belong here: which guess is right: that the
signature tells (``checking``).
"""

from __future__ import annotations

import ast
import json
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any

_BOM = b"\xef\xbb\xbf"
_MAX_DEPTH = 100
# Fields of bodies in the order in which they are sent, for what sorts keys; unknown names go last, as they come.
_SENT_ORDER = (
    "type", "timestamp", "test", "data", "scope", "tenant_id", "job", "batch", "job_id", "counts", "jobs",
    "jobs_truncated", "links", "name", "id", "subject_id", "generation", "status", "source_status", "all_done",
    "error_code", "created_at", "started_at", "completed_at", "result_url", "metadata", "batch_generation", "kind",
    "attempts", "stage", "error_message", "previous_job_id", "subject_status", "total", "succeeded", "failed",
    "canceled", "self",
)  # fmt: skip
_RANKS = {name: rank for rank, name in enumerate(_SENT_ORDER)}
_STYLES: tuple[tuple[tuple[str, str], bool], ...] = (
    ((",", ":"), False),  # webhookd's own
    ((",", ":"), True),
    ((", ", ": "), False),
    ((", ", ": "), True),
)


def list_originals(body: bytes) -> list[tuple[bytes, str]]:
    """Bodies that may have become ``body``, each once, with what would have happened to it."""
    found: dict[bytes, str] = {}
    for original, story in chain(_list_transports(body), _list_rewrites(body)):
        if original != body:
            found.setdefault(original, story)
    return list(found.items())


def describe_difference(captured: bytes, original: bytes) -> str:
    """Say where the two part, with a few bytes of each, escaped."""
    pairs = zip(captured, original, strict=False)
    at = next((n for n, (a, b) in enumerate(pairs) if a != b), min(len(captured), len(original)))
    have, sent = captured[at : at + 12], original[at : at + 12]
    return f"{len(captured)} bytes instead of {len(original)}; from byte {at} on {have!r} instead of {sent!r}"


def _list_transports(body: bytes) -> Iterator[tuple[bytes, str]]:
    """Changes that need no look at the content."""
    yield body.removeprefix(_BOM), "a byte order mark was put in front"
    yield body.rstrip(b"\r\n"), "a line end was added"
    yield body + b"\n", "its last line end was cut off"
    yield body.strip(), "white space was put around it"
    yield body.replace(b"\r\n", b"\n"), "its line ends became CR LF"
    yield body.replace(b"\n", b"\r\n"), "its line ends became LF"
    for encoding in ("latin-1", "cp1252"):
        yield from _attempt(partial(_recode, body, "utf-8", encoding), f"UTF-8 was read as {encoding}")
        yield from _attempt(partial(_recode, body, encoding, "utf-8"), f"UTF-8 was written as {encoding}")
    if body[:2] in {b"b'", b'b"'}:
        yield from _attempt(
            lambda: ast.literal_eval(body.decode()), "these are not the bytes but Python's print of them"
        )


def _list_rewrites(body: bytes) -> Iterator[tuple[bytes, str]]:
    """The same JSON as others write it."""
    document = _parse(body)
    if isinstance(document, str):
        inner = document.encode("utf-8", "surrogatepass")
        yield inner, "the text was encoded as a JSON string once more"
        yield from _list_rewrites(inner)
    elif isinstance(document, dict | list):
        for ordered, why in ((document, ""), (_as_sent(document), "keys in another order")):
            for separators, ascii_only in _STYLES:
                for original, _ in _attempt(partial(_encode, ordered, separators, ascii_only), ""):
                    yield original, _describe_rewrite(body, original, why)


def _recode(body: bytes, read_as: str, written_as: str) -> bytes:
    return body.decode(read_as).encode(written_as)


def _attempt(convert: Callable[[], Any], story: str) -> Iterator[tuple[bytes, str]]:
    try:
        original = convert()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return
    if isinstance(original, bytes):
        yield original, story


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body.removeprefix(_BOM))  # noqa: TID251 - what receivers' frameworks do, with order and NaN kept
    except (ValueError, RecursionError):
        return None


def _encode(document: Any, separators: tuple[str, str], ascii_only: bool) -> bytes:  # noqa: FBT001 - from a table
    text = json.JSONEncoder(separators=separators, ensure_ascii=ascii_only).encode(document)
    return text.encode("utf-8", "surrogatepass")


def _as_sent(value: Any, depth: int = 0) -> Any:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_as_sent(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    names = sorted(value, key=lambda name: _RANKS.get(name, len(_RANKS)))
    return {name: value[name] if name == "metadata" else _as_sent(value[name], depth + 1) for name in names}


def _describe_rewrite(body: bytes, original: bytes, why: str) -> str:
    signs = [why] if why else []
    if b"\\u" in body and b"\\u" not in original:
        signs.append("characters escaped")
    if b"\\/" in body and b"\\/" not in original:
        signs.append("slashes escaped")
    if (b'": ' in body) != (b'": ' in original) or b"\n" in body.strip():
        signs.append("other white space")
    return f"the JSON was parsed and written anew ({', '.join(signs) or 'as other bytes'})"
