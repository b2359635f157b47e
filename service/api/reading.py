"""Reading a request: its body within bounds, its query, and both as models.

Belongs here: bytes to validated values. Does not belong here: what they mean.
"""

from __future__ import annotations

import asyncio
from typing import Any
from urllib.parse import parse_qsl

import orjson
from aiohttp import web
from pydantic import BaseModel

from service.api.calls import Operation
from service.api.models import NoQuery
from service.api.problems import FieldError, Problem

MAX_QUERY_FIELDS = 50
BODY_SECONDS = 60.0


async def read_body(request: web.Request, limit: int, seconds: float = BODY_SECONDS) -> bytes:
    """Read the body. Raises Problem: 413 above ``limit`` bytes, 415 for a compressed one, 408 for one that drips."""
    encoding = request.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in {"", "identity"}:
        raise Problem(415, "unsupported_encoding", "Bodies are taken uncompressed.")
    if request.content_length is not None and request.content_length > limit:
        raise _too_large(limit)
    try:
        async with asyncio.timeout(seconds):
            return await _read_within(request, limit)
    except TimeoutError:
        raise Problem(408, "body_too_slow", f"The body took longer than {seconds:g} seconds.") from None


async def _read_within(request: web.Request, limit: int) -> bytes:
    received = bytearray()
    while chunk := await request.content.readany():
        received += chunk
        if len(received) > limit:
            raise _too_large(limit)
    return bytes(received)


def _too_large(limit: int) -> Problem:
    return Problem(413, "body_too_large", f"The body has more than {limit} bytes.")


def media_type(request: web.Request) -> str:
    """Return the content type without parameters, in lower case."""
    return request.headers.get("Content-Type", "").partition(";")[0].strip().lower()


def check_media_type(request: web.Request, body: bytes) -> None:
    """Raise Problem (415) for a body that is not declared as JSON."""
    kind = media_type(request)
    if body and kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise Problem(415, "unsupported_media_type", "Bodies are application/json.")


def parse_json(body: bytes) -> Any:
    """Parse JSON. Raises Problem (400)."""
    try:
        return orjson.loads(body)
    except (orjson.JSONDecodeError, RecursionError) as error:
        where = f" at line {error.lineno} column {error.colno}" if isinstance(error, orjson.JSONDecodeError) else ""
        raise Problem(400, "malformed_json", f"The body is not valid JSON{where}.") from None


def parse_body(operation: Operation, request: web.Request, body: bytes) -> BaseModel | None:
    """Validate a body against the operation's model. Raises Problem or ValidationError."""
    if operation.body is None:
        return None
    check_media_type(request, body)
    if not body and not operation.body_required:
        return operation.body.model_validate({})
    content = parse_json(body)
    if not isinstance(content, dict):
        raise Problem(400, "malformed_body", "The body is a JSON object.")
    return operation.body.model_validate(content)


def parse_query(operation: Operation, request: web.Request) -> BaseModel:
    """Validate a query string. Raises Problem or ValidationError."""
    try:
        text = request.rel_url.raw_query_string.encode("utf-8", "surrogateescape").decode()
        pairs = parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        raise Problem(400, "malformed_query", "The query is not percent-encoded UTF-8.") from None
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise Problem(400, "repeated_parameter", "A query parameter is given twice.")
    if any("\0" in value for value in fields.values()):
        raise Problem(
            422, "invalid_request", "A query parameter holds NUL.", errors=[FieldError("query", "nul", "NUL")]
        )
    return (operation.query or NoQuery).model_validate(fields)
